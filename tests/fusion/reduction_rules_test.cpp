// Every operator that reduces rows, beside the operator itself.
#include "tests/fusion/kernel_call.h"
#include "tests/support/graphs.h"

#include "fusion/program/reductions.h"
#include "lower/lower.h"
#include "ops/op.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <set>

namespace sconce::testing {
namespace {

// Calls of the operators on %x of 3 dimensions.
struct ReductionCall {
  const char* overload;  // of the operator
  const char* constants;
  const char* call;
};
constexpr ReductionCall kReductionCalls[] = {
    {"softmax.int", "%d : int = prim::Constant[value=-1]()", "aten::softmax(%x, %d, %none)"},
    {"log_softmax.int", "%d : int = prim::Constant[value=2]()", "aten::log_softmax(%x, %d, %none)"},
    {"sum", "", "aten::sum(%x, %none)"},
    {"sum.dim_IntList", "%d : int[] = prim::Constant[value=[1, 2]]()", "aten::sum(%x, %d, %false, %none)"},
    {"mean", "", "aten::mean(%x, %none)"},
    {"mean.dim", "%d : int[] = prim::Constant[value=[-1]]()", "aten::mean(%x, %d, %true, %none)"},
    {"amax", "%d : int[] = prim::Constant[value=[2]]()", "aten::amax(%x, %d, %false)"},
    {"amin", "%d : int[] = prim::Constant[value=[1, 2]]()", "aten::amin(%x, %d, %true)"},
    {"prod", "", "aten::prod(%x, %none)"},
    {"prod.dim_int", "%d : int = prim::Constant[value=2]()", "aten::prod(%x, %d, %true, %none)"},
    {"prod.dim_int", "%d : int = prim::Constant[value=-1]()", "aten::prod(%x, %d, %false, %none)"},
    {"logsumexp", "%d : int[] = prim::Constant[value=[2]]()", "aten::logsumexp(%x, %d, %false)"},
    {"norm.Scalar", "%p : int = prim::Constant[value=2]()", "aten::norm(%x, %p)"},
    {"norm.ScalarOpt_dim", "%p : int = prim::Constant[value=1]()\n%d : int[] = prim::Constant[value=[2]]()",
     "aten::norm(%x, %p, %d, %true)"},
    {"linalg_vector_norm", "%p : float = prim::Constant[value=2.]()\n%d : int[] = prim::Constant[value=[1, 2]]()",
     "aten::linalg_vector_norm(%x, %p, %d, %false, %none)"},
    {"linalg_vector_norm", "%p : float = prim::Constant[value=inf]()\n%d : int[] = prim::Constant[value=[2]]()",
     "aten::linalg_vector_norm(%x, %p, %d, %false, %none)"},
    {"var", "", "aten::var(%x, %true)"},
    {"var.dim", "%d : int[] = prim::Constant[value=[2]]()", "aten::var(%x, %d, %false, %true)"},
    {"var.correction", "%d : int[] = prim::Constant[value=[2]]()\n%c : int = prim::Constant[value=2]()",
     "aten::var(%x, %d, %c, %false)"},
    {"std", "", "aten::std(%x, %false)"},
    {"std.dim", "%d : int[] = prim::Constant[value=[1, 2]]()", "aten::std(%x, %d, %true, %false)"},
    {"std.correction", "%d : int[] = prim::Constant[value=[2]]()", "aten::std(%x, %d, %none, %true)"},
    {"layer_norm", "%s : int[] = prim::Constant[value=[40]]()\n%e : float = prim::Constant[value=1e-5]()",
     "aten::layer_norm(%x, %s, %none, %none, %e, %true)"},
    {"rms_norm", "%s : int[] = prim::Constant[value=[40]]()", "aten::rms_norm(%x, %s, %none, %none)"},
    {"rms_norm", "%s : int[] = prim::Constant[value=[40]]()\n%e : float = prim::Constant[value=0.01]()",
     "aten::rms_norm(%x, %s, %none, %e)"},
};

std::string graph_text_of(const ReductionCall& call) {
  // A pointwise operator before the reduction, so that the group is never a single node.
  return std::string("graph(%input : Tensor):\n") +
         "%none : NoneType = prim::Constant()\n%true : bool = prim::Constant[value=1]()\n"
         "%false : bool = prim::Constant[value=0]()\n" +
         call.constants + "\n%x : Tensor = aten::neg(%input)\n%r : Tensor = " + call.call + "\nreturn (%r)\n";
}

class ReductionRules : public ::testing::TestWithParam<size_t> {
 protected:
  const at::NoGradGuard no_grad_;
};

TEST_P(ReductionRules, AgreeWithTheOperators) {
  std::set<std::string> tested;
  for (const ReductionCall& call : kReductionCalls) {
    tested.insert(std::string("aten::") + call.overload);
    CountedKernels kernels(GetParam());
    const std::string text = graph_text_of(call);
    const auto with_kernels = plan_with_kernels(text, kernels);
    const auto ordinary = lower(graph_of(text));
    ASSERT_TRUE(ordinary) << text;
    size_t runs = 0;
    const auto expect_agreement = [&](const at::Tensor& input, double tolerance) {
      torch::jit::Stack got = {input};
      torch::jit::Stack expected = {input};
      run_plan(*with_kernels, got, AutogradUse::kNone);
      run_plan(**ordinary, expected, AutogradUse::kNone);
      EXPECT_EQ(got[0].toTensor().scalar_type(), expected[0].toTensor().scalar_type()) << call.call;
      EXPECT_EQ(got[0].toTensor().sizes(), expected[0].toTensor().sizes()) << call.call;
      EXPECT_EQ(got[0].toTensor().strides(), expected[0].toTensor().strides()) << call.call;
      EXPECT_TRUE(at::allclose(got[0].toTensor(), expected[0].toTensor(), tolerance, tolerance, /*equal_nan=*/true))
          << call.call << " of " << input.scalar_type() << "\n"
          << got[0].toTensor() << "\n"
          << expected[0].toTensor();
      ++runs;
    };
    expect_agreement(at::randn({3, 5, 40}), 2e-5);
    expect_agreement(at::randn({3, 5, 40}, at::kDouble), 1e-12);
    at::Tensor special = at::randn({3, 5, 40});
    special[0][1][7] = std::nan("");
    special[1][2][9] = std::numeric_limits<double>::infinity();
    special[2][3][11] = -std::numeric_limits<double>::infinity();
    special[2].slice(0, 4).fill_(std::numeric_limits<double>::infinity());
    expect_agreement(special, 2e-5);
    EXPECT_EQ(kernels.counts().runs, runs) << call.call << ": no kernel ran";
  }
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    EXPECT_TRUE(!handle || !may_reduce(op_of(handle->schema())) || tested.contains(toString(name))) << toString(name);
  }
}

INSTANTIATE_TEST_SUITE_P(Lanes, ReductionRules, ::testing::ValuesIn(kernel_widths()),
                         [](const auto& lanes) { return std::to_string(lanes.param); });

}  // namespace
}  // namespace sconce::testing
