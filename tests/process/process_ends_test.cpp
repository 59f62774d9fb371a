// A process may end at any moment, whichever thread used sconce first, and whichever ends it. SCONCE_ENDS: how many do.
#include <sconce/compiled_backward.h>
#include <sconce/module.h>
#include <sconce/trace.h>

#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace sconce::testing {
namespace {

// Different in each process, so that no kernel is found on disk.
double new_number() {
  static std::mt19937_64 engine(std::random_device{}());
  return std::uniform_real_distribution<double>(0.5, 1.5)(engine);
}

// A model whose weights leave memory, on the background thread, while its plans and kernels are compiled there.
void load_and_call() {
  const at::NoGradGuard no_grad;
  const std::string path = ::testing::TempDir() + "process_ends_test_" + std::to_string(getpid()) + ".pt";
  torch::jit::Module script = module_of(
      "def forward(self, x):\n"
      "    x = torch.tanh(torch.linear(x, self.a)) * self.s + 0.5\n"
      "    return torch.softmax(torch.sigmoid(torch.linear(x, self.b)) * self.s - x.mean(), -1)\n",
      {{"a", at::randn({300, 200})}, {"b", at::randn({200, 300})}, {"s", at::scalar_tensor(new_number())}});
  script.eval();
  script.save(path);
  static const Module kept = load(path, Options().frozen(true));  // until the end, as a program's models are
  for (int call = 0; call < 4; ++call) {
    kept.forward({at::ones({3 + call % 2, 200})});
  }
  ::unlink(path.c_str());
}

void call_traces() {
  const at::NoGradGuard no_grad;
  static std::vector<TracedFunction> kept;
  for (int length = 1; length < 8; ++length) {
    kept.push_back(trace([length, factor = new_number()](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
      at::Tensor x = in[0];
      for (int i = 0; i < length; ++i) {
        x = at::softmax((x * factor).sin().exp().tanh(), -1) + 0.5;
      }
      return {x};
    }));
    for (int call = 0; call < 4; ++call) {
      kept.back()({at::ones({8, 33})});
    }
  }
}

void run_backward() {
  static const BackwardCache plans{Options()};
  const at::Tensor weight = at::randn({6, 4}).set_requires_grad(true);
  for (int call = 0; call < 20; ++call) {
    const at::Tensor x = at::randn({2 + call % 5, 6});
    const CompiledBackward scope(plans);
    (at::relu(x.mm(weight)) * new_number()).pow(2).mean().backward();
  }
}

void end_after(std::chrono::microseconds wait) {
  std::this_thread::sleep_for(wait);
  std::exit(0);
}

TEST(ProcessEnds, WellWhileThingsAreCompiled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // each a process of its own, started anew
  std::mt19937 engine(20261127);                   // the new process makes the same choices
  const auto ends = static_cast<int>(environment_number("SCONCE_ENDS", 24));
  for (int end = 0; end < ends; ++end) {
    const auto kind = engine() % 3;
    const bool is_main = engine() % 2 == 0;
    const std::chrono::microseconds wait(engine() % (1U << (engine() % 18)));
    EXPECT_EXIT(
        {
          at::set_num_threads(1);
          std::thread user([=] {
            kind == 0 ? load_and_call() : kind == 1 ? call_traces() : run_backward();
            if (!is_main) {
              end_after(wait);
            }
          });
          user.join();
          end_after(wait);
        },
        ::testing::ExitedWithCode(0), "")
        << "kind " << kind << ", " << wait.count() << " us after its calls, by " << (is_main ? "main" : "the user's thread");
  }
}

}  // namespace
}  // namespace sconce::testing
