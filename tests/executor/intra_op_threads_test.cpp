// Options::intra_op_threads: a limit for the calls of one module, and for nothing else.
#include "tests/support/graphs.h"
#include "tests/support/threads.h"

#include "base/compile_queue.h"
#include "plan/intra_op_threads.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <thread>

namespace sconce {
namespace {

using testing::Threads;

size_t most_threads(const Module& module) {
  size_t most = 0;
  for (const PlanExplanation& plan : module.method("forward").explain().plans) {
    most = std::max(most, plan.threads);
  }
  return most;
}

TEST(IntraOpThreads, AreLimitedInTheCallsOfTheModuleAlone) {
  const at::NoGradGuard no_grad;
  const Threads four(4);
  const torch::jit::Module script =
      testing::module_of("def forward(self, x: Tensor) -> Tensor:\n    return torch.relu(torch.matmul(x, self.w)) + 1.0\n",
                         {{"w", at::randn({300, 200})}});
  const at::Tensor x = at::randn({100, 300});
  const Module limited = accelerate(script, Options().compile(CompileMode::kBlocking).intra_op_threads(2));
  const Module other = accelerate(script, Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 5; ++call) {
    CompileQueue::of_process().wait_until_idle();  // it takes a core from calls
    EXPECT_TRUE(testing::agree(limited.forward({x}), other.forward({x}), 1e-4));
    EXPECT_EQ(at::get_num_threads(), 4);
  }
  EXPECT_EQ(most_threads(limited), 2U);
  EXPECT_EQ(most_threads(other), 4U);
  EXPECT_EQ(limited.method("forward").explain().plans[0].threads_limit, 2U);
}

TEST(IntraOpThreads, AreNeverMoreThanLibTorchs) {
  const at::NoGradGuard no_grad;
  const Threads two(2);
  const Module module = accelerate(testing::module_of("def forward(self, x: Tensor) -> Tensor:\n    return x * 2.0\n"),
                                   Options().intra_op_threads(16));
  CompileQueue::of_process().wait_until_idle();
  module.forward({at::randn({3})});
  EXPECT_EQ(most_threads(module), 2U);
}

TEST(IntraOpThreads, AreAsBeforeAfterAnException) {
  const Threads four(4);
  const Module module =
      accelerate(testing::module_of("def forward(self, x: Tensor) -> Tensor:\n    return torch.matmul(x, x)\n"),
                 Options().intra_op_threads(1));
  EXPECT_ANY_THROW(module.forward({at::randn({2, 3})}));
  EXPECT_EQ(at::get_num_threads(), 4);
}

TEST(IntraOpThreads, AreLimitedInBackwardToo) {
  const Threads four(4);
  const Module module = accelerate(
      testing::module_of("def forward(self, x: Tensor) -> Tensor:\n    return torch.tanh(x * 2.0).sigmoid().sum()\n"),
      Options().compile(CompileMode::kBlocking).intra_op_threads(3));
  for (int call = 0; call < 4; ++call) {
    CompileQueue::of_process().wait_until_idle();
    const at::Tensor x = at::randn({50, 50}).requires_grad_();
    module.forward({x}).toTensor().backward();
    EXPECT_TRUE(x.grad().defined());
    EXPECT_EQ(at::get_num_threads(), 4);
  }
  for (const PlanExplanation& plan : module.method("forward").explain().plans) {
    if (plan.gradients) {
      for (const DifferentiableExplanation& subgraph : plan.gradients->subgraphs) {
        for (const PlanExplanation& own : subgraph.plans) {
          EXPECT_EQ(own.threads, 3U);
        }
      }
    }
  }
}

TEST(IntraOpThreads, OfOtherThreadsStay) {
  const Threads four(4);
  const IntraOpThreads one(1);
  EXPECT_EQ(at::get_num_threads(), 1);
  int elsewhere = 0;
  std::thread([&] { elsewhere = at::get_num_threads(); }).join();
  EXPECT_EQ(elsewhere, 4);
}

TEST(IntraOpThreads, MustNotBeNegative) { EXPECT_ANY_THROW(Options().intra_op_threads(-1)); }

}  // namespace
}  // namespace sconce
