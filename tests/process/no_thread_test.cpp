// Where no thread can be started, as under a limit of processes, calls work and explain what they lack.
#include <sconce/module.h>
#include <sconce/trace.h>

#include "base/compile_queue.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <string>

namespace {

std::atomic<bool> no_threads{false};

}  // namespace

// Takes the place of the C library's.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                              void* argument) {
  if (no_threads) {
    return EAGAIN;
  }
  static const auto create = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, function, argument);
}

namespace sconce::testing {
namespace {

// In a process of its own, which has no thread yet.
void run_without_threads() {
  at::set_num_threads(1);
  no_threads = true;
  const at::NoGradGuard no_grad;
  torch::jit::Module script =
      module_of("def forward(self, x):\n    return torch.tanh(x * 2 + self.a).softmax(-1)\n", {{"a", at::ones({8})}});
  const at::Tensor x = at::randn({4, 8});
  const at::Tensor expected = at::tanh(x * 2 + 1).softmax(-1);
  for (const CompileMode mode : {CompileMode::kBackground, CompileMode::kBlocking}) {
    const Module module = accelerate(script, Options().compile(mode));
    for (int call = 0; call < 5; ++call) {
      EXPECT_TRUE(at::allclose(module.forward({x}).toTensor(), expected));
    }
    std::string refusals;
    for (const RefusalExplanation& refusal : module.method("forward").explain().refusals) {
      refusals += refusal.reason;
    }
    const bool is_told = refusals.find("no thread can be started") != std::string::npos;
    EXPECT_EQ(is_told, mode == CompileMode::kBackground) << refusals;
  }
  const TracedFunction traced =
      trace([](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> { return {in[0].sin()}; });
  for (int call = 0; call < 5; ++call) {
    EXPECT_TRUE(at::allclose(traced({x}).front(), x.sin()));
  }
  std::exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(NoThread, CallsWorkAndTellWhatTheyLack) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_without_threads(), ::testing::ExitedWithCode(0),
              "sconce: calls run without a specialized plan: no thread can be started that compiles");
}

TEST(NoThread, TheQueueStartsItsThreadLater) {
  CompileQueue queue;
  no_threads = true;
  EXPECT_FALSE(queue.submit([] {}));
  EXPECT_THAT(queue.why_no_thread(), ::testing::HasSubstr("unavailable"));
  bool is_run = false;
  queue.run_and_wait([&] { is_run = true; });
  EXPECT_TRUE(is_run);
  no_threads = false;
  EXPECT_TRUE(queue.submit([] {}));
  EXPECT_EQ(queue.why_no_thread(), "");
}

}  // namespace
}  // namespace sconce::testing
