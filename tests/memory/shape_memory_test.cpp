// Calls with arguments of many sizes, on several threads. What they need at one time bounds what stays between them, and
// nothing stays of a module that is gone.
#include <sconce/module.h>

#include "base/compile_queue.h"
#include "fusion/cpu/cpu_kernels.h"
#include "plan/large_blocks.h"
#include "tests/support/bytes_in_use.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace sconce::testing {
namespace {

constexpr int kThreads = 4;
constexpr int64_t kWidth = 256;
constexpr int64_t kMostRows = 512;  // a tensor of the model takes up to 0.5 MiB

Module chain() {
  at::manual_seed(1);
  torch::jit::Module script = module_of(
      "def forward(self, x):\n"
      "    x = torch.relu(torch.linear(x, self.a))\n"
      "    x = torch.sigmoid(torch.linear(x, self.b)) * torch.tanh(x)\n"
      "    return torch.linear(x, self.a).sum(1)\n",
      {{"a", at::randn({kWidth, kWidth}) / 16}, {"b", at::randn({kWidth, kWidth}) / 16}});
  script.eval();
  return accelerate(script, Options().compile(CompileMode::kBlocking));
}

void call_on_threads(const Module& module, int calls, uint64_t seed) {
  std::vector<std::jthread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&module, calls, seed = seed * kThreads + thread] {
      const at::NoGradGuard no_grad;
      std::mt19937_64 random(seed);
      for (int call = 0; call < calls; ++call) {
        const auto rows = static_cast<int64_t>(1 + random() % kMostRows);
        ASSERT_EQ(module.forward({at::ones({rows, kWidth})}).toTensor().numel(), rows);
      }
    });
  }
}

// Sets up what the process keeps for good: kernels, and what LibTorch keeps for its operators.
void warm_up() {
  at::set_num_threads(1);
  call_on_threads(chain(), 20, 0);
  CompileQueue::of_process().wait_until_idle();
  free_kept_blocks();
}

TEST(ShapeMemory, ManySizesKeepAsMuchAsRunsNeedAtOneTime) {
  warm_up();
  const double before = bytes_in_use();
  const Module module = chain();
  // Each thread has up to three tensors at one time, in blocks of up to twice their size. Weights and packed copies: 1 MiB.
  constexpr double kMost = (3 * kThreads * 0.5 * 2 + 1 + 0.5) * kMiB;
  for (uint64_t round = 0; round < 4; ++round) {
    call_on_threads(module, 150, round);
    EXPECT_LE(bytes_in_use() - before, kMost) << "after round " << round;
  }
  EXPECT_LE(module.method("forward").explain().plans.size(), 3U);
}

TEST(ShapeMemory, UnloadedModulesGiveBackAll) {
  warm_up();
  const double before = bytes_in_use();
  for (uint64_t time = 0; time < 3; ++time) {
    call_on_threads(chain(), 100, time);
    CompileQueue::of_process().wait_until_idle();
    EXPECT_EQ(free_kept_blocks(), 0U);
    EXPECT_LE(bytes_in_use() - before, 0.5 * kMiB) << "time " << time;
  }
}

// Returns the resident memory of the file's mappings.
double resident_of(const std::string& file) {
  std::ifstream maps("/proc/self/smaps");
  double bytes = 0;
  bool is_of_file = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('/') != std::string::npos || line.find(" 00:00 0") != std::string::npos) {
      is_of_file = line.ends_with("/" + file);
    } else if (is_of_file && line.starts_with("Rss:")) {
      bytes += 1024 * std::stod(line.substr(4));
    }
  }
  return bytes;
}

// The compiler of kernels is loaded for the first of them.
TEST(ShapeMemory, CompilerLeavesAfterTheLastKernel) {
  warm_up();
  if (!why_no_kernel_compiler().empty()) {
    GTEST_SKIP() << why_no_kernel_compiler();
  }
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::ones({2000});
  for (const char* expression : {"torch.tanh(x * 3.0) + x", "torch.sigmoid(x - 7.0) * x"}) {
    const Module module = accelerate(module_of("def forward(self, x):\n    return " + std::string(expression) + "\n", {}),
                                     Options().compile(CompileMode::kBlocking));
    for (int call = 0; call < 4; ++call) {
      module.forward({x});
    }
    CompileQueue::of_process().wait_until_idle();
    EXPECT_GT(resident_of("libsconce_llvm.so"), 0);
    EXPECT_LE(resident_of("libsconce_llvm.so"), 4 * kMiB);
  }
}

}  // namespace
}  // namespace sconce::testing
