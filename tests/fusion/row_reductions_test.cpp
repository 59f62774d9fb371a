// Groups with several reductions in one kernel.
#include "tests/fusion/kernel_call.h"
#include "tests/support/graphs.h"

#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace sconce::testing {
namespace {

// Both results have three passes over a row. The exponentials of the second wait for the last pass in the memory of the
// first.
TEST(RowReductions, KeepBuffersApartFromOtherResults) {
  const at::NoGradGuard no_grad;
  const std::string text = R"(graph(%x : Tensor, %y : Tensor):
  %one : int = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %a : Tensor = aten::log_softmax(%x, %one, %none)
  %b : Tensor = aten::softmax(%y, %one, %none)
  return (%a, %b)
)";
  for (const size_t lanes : kernel_widths()) {
    CountedKernels kernels(lanes);
    const auto with_kernels = plan_with_kernels(text, kernels);
    const auto ordinary = lower(graph_of(text));
    ASSERT_TRUE(ordinary);
    for (const int64_t width : {1, 4, 7, 16, 33, 100}) {
      torch::jit::Stack got = {at::randn({3, width}), at::randn({3, width})};
      torch::jit::Stack expected = got;
      const size_t runs = kernels.counts().runs;
      run_plan(*with_kernels, got, AutogradUse::kNone);
      run_plan(**ordinary, expected, AutogradUse::kNone);
      EXPECT_EQ(kernels.counts().runs, runs + 1) << width;
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(agree(got[i], expected[i], 1e-6)) << "result " << i << ", rows of " << width;
      }
    }
  }
}

}  // namespace
}  // namespace sconce::testing
