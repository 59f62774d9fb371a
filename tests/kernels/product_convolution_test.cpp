// Convolutions of single pixels whose weights are not packed: by products where those are faster, else by the operator.
#include "tests/support/graphs.h"
#include "tests/support/threads.h"

#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace sconce {
namespace {

std::unique_ptr<Plan> plan_of(bool is_row) {
  const std::string one = is_row ? "[1]" : "[1, 1]";
  const std::string zero = is_row ? "[0]" : "[0, 0]";
  return std::move(
      *lower(testing::graph_of("graph(%x : Tensor, %w : Tensor, %b : Tensor?):\n"
                               "  %one : int[] = prim::Constant[value=" +
                               one + "]()\n  %zero : int[] = prim::Constant[value=" + zero +
                               "]()\n"
                               "  %false : bool = prim::Constant[value=0]()\n"
                               "  %groups : int = prim::Constant[value=1]()\n"
                               "  %y : Tensor = aten::convolution(%x, %w, %b, %one, %zero, %one, %false, %zero, "
                               "%groups)\n"
                               "  return (%y)\n"),
             nullptr, nullptr, LoweringOptions{.is_prepared = true}));
}

TEST(ProductConvolution, ComputesWhatLibTorchComputes) {
  const at::NoGradGuard no_grad;
  at::manual_seed(5);
  for (const int count : {1, 2}) {
    const testing::Threads scope(count);
    for (const auto& sizes : std::vector<std::vector<int64_t>>{
             {1, 16, 20, 20}, {5, 16, 7, 9}, {2, 16, 1, 1}, {0, 16, 4, 4}, {3, 16, 50}, {2, 16, 30, 31}}) {
      const bool is_row = sizes.size() == 3;
      const auto plan = plan_of(is_row);
      for (const int64_t filters : {1, 9, 40}) {
        const at::Tensor weight =
            at::randn(is_row ? std::vector<int64_t>{filters, 16, 1} : std::vector<int64_t>{filters, 16, 1, 1});
        for (const at::Tensor& bias : {at::Tensor(), at::randn({filters})}) {
          for (const bool is_last : {false, true}) {
            const at::Tensor dense = at::randn(sizes);
            const at::Tensor image = is_last && !is_row ? dense.to(at::MemoryFormat::ChannelsLast) : dense;
            const std::vector<int64_t> ones(sizes.size() - 2, 1);
            const std::vector<int64_t> zeros(sizes.size() - 2, 0);
            const at::Tensor expected = at::convolution(image, weight, bias, ones, zeros, ones, false, zeros, 1);
            for (int run = 0; run < 2; ++run) {
              torch::jit::Stack stack = {image, weight, bias.defined() ? c10::IValue(bias) : c10::IValue()};
              run_plan(*plan, stack, AutogradUse::kNone);
              EXPECT_TRUE(at::allclose(stack[0].toTensor(), expected, 1e-4, 1e-4)) << image.sizes() << ", " << filters;
              EXPECT_EQ(stack[0].toTensor().strides(), expected.strides()) << image.sizes() << ", " << filters;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sconce
