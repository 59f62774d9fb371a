// Depthwise convolutions of rows of pixels, along the rows of single channels.
#include "tests/support/graphs.h"
#include "tests/support/threads.h"

#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace sconce {
namespace {

std::unique_ptr<Plan> plan_of_lines(int64_t padding, int64_t dilation, int64_t groups) {
  return std::move(*lower(
      testing::graph_of("graph(%x : Tensor, %w : Tensor, %b : Tensor?):\n"
                        "  %one : int[] = prim::Constant[value=[1]]()\n"
                        "  %padding : int[] = prim::Constant[value=[" +
                        std::to_string(padding) + "]]()\n  %dilation : int[] = prim::Constant[value=[" +
                        std::to_string(dilation) + "]]()\n  %groups : int = prim::Constant[value=" + std::to_string(groups) +
                        "]()\n"
                        "  %y : Tensor = aten::conv1d(%x, %w, %b, %one, %padding, %dilation, %groups)\n"
                        "  return (%y)\n"),
      nullptr, nullptr, LoweringOptions{.is_prepared = true}));
}

void expect_equal_lines(const Plan& plan, const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                        int64_t padding, int64_t dilation) {
  const at::Tensor expected = at::conv1d(rows, weight, bias, 1, padding, dilation, weight.size(0));
  for (int run = 0; run < 2; ++run) {
    torch::jit::Stack stack = {rows, weight, bias.defined() ? c10::IValue(bias) : c10::IValue()};
    run_plan(plan, stack, AutogradUse::kNone);
    EXPECT_TRUE(at::allclose(stack[0].toTensor(), expected, 1e-4, 1e-5, /*equal_nan=*/true))
        << rows.sizes() << ", " << weight.sizes() << ", padding " << padding << ", dilation " << dilation;
    EXPECT_EQ(stack[0].toTensor().strides(), expected.strides());
  }
}

TEST(LineConvolution, ComputesWhatLibTorchComputes) {
  const at::NoGradGuard no_grad;
  at::manual_seed(5);
  for (const int count : {1, 2}) {
    const testing::Threads scope(count);
    for (const auto& sizes :
         std::vector<std::vector<int64_t>>{{3, 20, 85}, {1, 3, 40}, {2, 16, 7}, {3, 20, 16}, {1, 1, 33}, {2, 8, 1}}) {
      for (const int64_t kernel : {1, 3, 31}) {
        for (const int64_t dilation : {1, 3}) {
          for (const int64_t padding : {int64_t{0}, int64_t{1}, (kernel - 1) * dilation, kernel * dilation + 5}) {
            if (sizes[2] + 2 * padding < (kernel - 1) * dilation + 1) {
              continue;
            }
            const auto plan = plan_of_lines(padding, dilation, sizes[1]);
            const at::Tensor rows = at::randn(sizes);
            const at::Tensor weight = at::randn({sizes[1], 1, kernel});
            expect_equal_lines(*plan, rows, weight, at::Tensor(), padding, dilation);
            expect_equal_lines(*plan, rows, weight, at::randn({sizes[1]}), padding, dilation);
            expect_equal_lines(*plan, rows.transpose(1, 2).contiguous().transpose(1, 2), weight, at::Tensor(), padding,
                               dilation);
          }
        }
      }
    }
  }
}

TEST(LineConvolution, KeepsNaNWhereItIs) {
  const at::NoGradGuard no_grad;
  const auto plan = plan_of_lines(1, 1, 4);
  at::Tensor rows = at::randn({2, 4, 50});
  rows[1][2][20] = std::numeric_limits<float>::quiet_NaN();
  expect_equal_lines(*plan, rows, at::randn({4, 1, 3}), at::randn({4}), 1, 1);
}

}  // namespace
}  // namespace sconce
