// Why a group of nodes runs its nodes one by one, as `explain` tells it.
#include "tests/support/graphs.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace sconce::testing {
namespace {

// The reasons of a function's groups, after some calls.
std::set<NotPrepared> reasons_of(const std::string& result, const at::Tensor& x, Options options = {}) {
  Module module =
      accelerate(module_of("def forward(self, x):\n    return " + result + "\n"), options.compile(CompileMode::kBlocking));
  const at::NoGradGuard no_grad;
  for (int call = 0; call < 3; ++call) {
    module.forward({x});
  }
  std::set<NotPrepared> reasons;
  for (const PlanExplanation& plan : module.method("forward").explain().plans) {
    for (const NotPreparedExplanation& each : plan.not_prepared) {
      if (each.op.starts_with("kernel of ")) {
        reasons.insert(each.reason);
      }
    }
  }
  return reasons;
}

TEST(RefusedGroups, TellWhatTheirOperandsLack) {
  EXPECT_EQ(reasons_of("torch.tanh(x) * 2", at::randn({4, 40})), std::set<NotPrepared>());
  EXPECT_EQ(reasons_of("torch.tanh(x) * 2", at::randn({4, 40}).to(at::kHalf)),
            std::set<NotPrepared>{NotPrepared::kOperandForm});
  EXPECT_EQ(reasons_of("(x * 2).sum(-1)", at::randn({2, 200'000})), std::set<NotPrepared>{NotPrepared::kOperandForm});
}

TEST(RefusedGroups, TellThatTheyMayDiffer) {
  EXPECT_EQ(reasons_of("torch.softmax(torch.tanh(x) * 2, -1)", at::randn({4, 40}), Options().exact(true)),
            std::set<NotPrepared>{NotPrepared::kDiffers});
}

TEST(RefusedGroups, TellThatLibTorchIsAsFast) {
  EXPECT_EQ(reasons_of("x.t().contiguous()", at::randn({2000, 2000})), std::set<NotPrepared>{NotPrepared::kFastEnough});
}

}  // namespace
}  // namespace sconce::testing
