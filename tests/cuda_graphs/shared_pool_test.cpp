// Several captured ranges in one plan: none writes what a later range still needs.
#include "tests/cuda_graphs/module_on_both.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::IsEmpty;

class SharedPool : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), IsEmpty()); }
  const at::NoGradGuard no_grad_;
  SimulatedGpu gpu_;
};

// The first range gives tensors of one size for batches of any size, which the third one reads. The second range has
// intermediate results of that size, and is captured before the first range is captured for the second batch size.
constexpr const char* kThreeRanges = R"(
def forward(self, x, y):
    a = torch.mm(x.t(), x)
    b = torch.mm(a, self.w)
    c = torch.mm(b, self.w)
    t = y + torch.rand_like(y) * 0
    for i in range(3):
        t = torch.mm(torch.mm(t, self.w), y)
    zeros = torch.rand_like(t) * 0
    return torch.mm(a, b) + torch.mm(c + zeros, t)
)";

TEST_F(SharedPool, KeepsResultsThatALaterRangeReads) {
  ModuleOnBoth both(gpu_, kThreeRanges, {{"w", at::randn({8, 8}) * 0.3}});
  for (int call = 0; call < 24; ++call) {
    const int64_t batch = call < 5 ? 3 : call < 10 ? 5 : 3 + call % 4;
    both.forward({at::randn({batch, 8}), at::randn({8, 8}) * 0.3}, "call " + std::to_string(call));
  }
  EXPECT_GE(both.counts().own.ranges, 3U);
  EXPECT_GE(both.counts().own.replays, 30U) << both.counts().own.reasons;
}

}  // namespace
}  // namespace sconce::testing
