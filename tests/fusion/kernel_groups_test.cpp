// Generated groups of pointwise nodes: one plan with kernels and one without, over operands of several sizes.
//
//   SCONCE_GROUPS=20000 build/release/tests/fusion_test --gtest_filter='KernelGroups.*'    more of them
#include "tests/fusion/element_values.h"
#include "tests/fusion/group_generator.h"
#include "tests/fusion/kernel_call.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"
#include "tests/support/part.h"

#include "fusion/program/kernel_width.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace sconce::testing {
namespace {

TEST(KernelGroups, AgreeWithTheirNodes) {
  const at::NoGradGuard no_grad;
  size_t runs = 0;
  size_t calls = 0;
  const Seeds seeds = seeds_in_part({1, environment_number("SCONCE_GROUPS", 1000)});
  for (uint64_t seed = seeds.first; seed < seeds.end() && !HasFailure(); ++seed) {
    GroupGenerator generator(seed, GroupGenerator::Contents::kExact);
    const std::string text = generator.text();
    CountedKernels kernels(kernel_lanes());
    const auto with_kernels = plan_with_kernels(text, kernels);
    const auto ordinary = lower(graph_of(text));
    ASSERT_TRUE(ordinary) << text;
    constexpr std::pair<int64_t, int64_t> kSizes[] = {{4, 5}, {7, 33}, {2, 1}, {4, 5}, {7, 33}, {4, 5}, {2, 1}, {7, 33}};
    for (const auto& [height, width] : kSizes) {
      const std::vector<c10::IValue> operands = generator.operands(height, width);
      const auto [expected, error] = results_of(**ordinary, operands);
      const auto [got, got_error] = results_of(*with_kernels, operands);
      ++calls;
      ASSERT_EQ(got_error.empty(), error.empty()) << "seed " << seed << "\n" << text;
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].scalar_type(), expected[i].scalar_type()) << "seed " << seed << "\n" << text;
        EXPECT_EQ(got[i].sizes(), expected[i].sizes()) << "seed " << seed;
        EXPECT_EQ(got[i].strides(), expected[i].strides())
            << "seed " << seed << ", result " << i << ", width " << width << "\n"
            << text;
        int64_t where = -1;
        EXPECT_EQ(distance_between(got[i], expected[i], got[i], Distance{.any_zero = true}, &where), 0)
            << "seed " << seed << ", result " << i << " at " << where << ", width " << width << "\n"
            << text;
      }
    }
    runs += kernels.counts().runs;
  }
  EXPECT_GT(runs * 2, calls) << "most calls run without kernels";
}

}  // namespace
}  // namespace sconce::testing
