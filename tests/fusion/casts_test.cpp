// Casts in kernels, beside LibTorch's. A cast is computed by a kernel if the operand is known to have another dtype.
#include "tests/fusion/element_values.h"
#include "tests/fusion/kernel_call.h"
#include "tests/support/graphs.h"

#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace sconce::testing {
namespace {

constexpr at::ScalarType kCastDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kInt, at::kByte, at::kBool};

class Casts : public ::testing::TestWithParam<size_t> {
 protected:
  const at::NoGradGuard no_grad_;
};

// A graph of one operand whose dtype is known.
std::string text_of(at::ScalarType from, int64_t to, const std::string& nodes) {
  return std::string("graph(%x : ") + c10::toString(from) +
         "(*, *, *)):\n  %dtype : int = prim::Constant[value=" + std::to_string(to) +
         "]()\n  %no : bool = prim::Constant[value=0]()\n  %none : NoneType = prim::Constant()\n"
         "  %zero : int = prim::Constant[value=0]()\n  %erf : str = prim::Constant[value=\"none\"]()\n  %back : int = "
         "prim::Constant[value=" +
         std::to_string(static_cast<int>(from)) + "]()\n" + nodes + "  return (%r)\n";
}

at::Tensor run(const std::string& text, const at::Tensor& x, const GroupCompiler* kernels) {
  const auto plan = kernels != nullptr ? plan_with_kernels(text, *kernels) : std::move(*lower(graph_of(text)));
  torch::jit::Stack stack = {x};
  run_plan(*plan, stack, AutogradUse::kNone);
  return stack.at(0).toTensor();
}

std::vector<at::Tensor> layouts_of(const at::Tensor& values) {
  return {values.reshape({10, 20, 5}), values.reshape({20, 5, 10}).permute({1, 2, 0}),
          values.reshape({1, 25, 40}).transpose(0, 1), values.reshape({10, 20, 5}).slice(1, 0, 20, 2),
          values.slice(0, 0, 0).reshape({0, 3, 2})};
}

// To integers, LibTorch's results for floating numbers that are out of range depend on the element's place.
bool is_computed(at::ScalarType from, at::ScalarType to) {
  return from != to && (!c10::isFloatingType(from) || c10::isFloatingType(to) || to == at::kBool);
}

TEST_P(Casts, HaveTheBitsAndStridesOfLibTorch) {
  for (const at::ScalarType from : kCastDtypes) {
    const at::Tensor values = special_values(1000, from, 0);
    for (const at::ScalarType to : kCastDtypes) {
      const std::string text =
          text_of(from, static_cast<int64_t>(to), "  %r : Tensor = aten::to(%x, %dtype, %no, %no, %none)\n");
      for (const at::Tensor& x : layouts_of(values)) {
        const CountedKernels kernels(GetParam());
        const at::Tensor got = run(text, x, &kernels);
        const at::Tensor expected = run(text, x, nullptr);
        const std::string what = std::string(c10::toString(from)) + " to " + c10::toString(to);
        EXPECT_EQ(kernels.counts().runs, is_computed(from, to) && x.is_non_overlapping_and_dense() ? 1u : 0u) << what;
        EXPECT_EQ(got.strides(), expected.strides()) << what;
        int64_t where = -1;
        EXPECT_EQ(distance_between(got, expected, x, Distance{}, &where), 0) << what << " at " << where;
      }
    }
  }
}

// A copy with a dtype, or with the operand's own; a copy for its layout is read through.
TEST_P(Casts, MayCopy) {
  for (const at::ScalarType from : kCastDtypes) {
    for (const char* to : {"%dtype", "%none"}) {
      std::string text =
          text_of(from, static_cast<int64_t>(at::kDouble),
                  "  %1 : Tensor = aten::_to_copy(%x, " + std::string(to) + ", %none, %none, %none, %no, %none)\n" +
                      "  %2 : Tensor = aten::clone(%1, %none)\n  %3 : Tensor = aten::contiguous(%2, %zero)\n" +
                      "  %4 : Tensor = aten::isnan(%3)\n  %r : Tensor = aten::where(%4, %3, %3)\n");
      for (const at::Tensor& x : layouts_of(special_values(1000, from, 0))) {
        const CountedKernels kernels(GetParam());
        const at::Tensor got = run(text, x, &kernels);
        const at::Tensor expected = run(text, x, nullptr);
        EXPECT_EQ(kernels.counts().runs, x.is_non_overlapping_and_dense() ? 1u : 0u) << from;
        EXPECT_EQ(got.strides(), expected.strides()) << from;
        int64_t where = -1;
        EXPECT_EQ(distance_between(got, expected, x, Distance{}, &where), 0) << from << " at " << where;
      }
    }
  }
}

// One kernel computes a function of bfloat16 in float32.
TEST_P(Casts, StandBetweenOtherOperators) {
  const std::string text = text_of(at::kBFloat16, static_cast<int64_t>(at::kFloat),
                                   "  %1 : Float(*, *, *) = aten::to(%x, %dtype, %no, %no, %none)\n"
                                   "  %2 : Float(*, *, *) = aten::mul(%1, %1)\n  %3 : Float(*, *, *) = aten::sqrt(%2)\n"
                                   "  %r : Tensor = aten::to(%3, %back, %no, %no, %none)\n");
  const at::Tensor x = special_values(1000, at::kBFloat16, 0).reshape({10, 20, 5});
  const CountedKernels kernels(GetParam());
  const at::Tensor got = run(text, x, &kernels);
  EXPECT_EQ(kernels.counts().prepared, 1u);
  EXPECT_EQ(kernels.counts().runs, 1u);
  int64_t where = -1;
  EXPECT_EQ(distance_between(got, run(text, x, nullptr), x, Distance{}, &where), 0) << where;
}

// Nothing is known of the operand: the cast may return the operand itself.
TEST_P(Casts, AreLeftToLibTorchWhereTheyMayReturnTheirOperand) {
  const std::string text =
      "graph(%x : Tensor):\n  %dtype : int = prim::Constant[value=6]()\n  %no : bool = prim::Constant[value=0]()\n"
      "  %none : NoneType = prim::Constant()\n  %r : Tensor = aten::to(%x, %dtype, %no, %no, %none)\n  return (%r)\n";
  const CountedKernels kernels(GetParam());
  const at::Tensor x = at::randn({3});
  EXPECT_TRUE(run(text, x, &kernels).is_same(x));
  EXPECT_EQ(kernels.counts().runs, 0u);
}

INSTANTIATE_TEST_SUITE_P(Lanes, Casts, ::testing::ValuesIn(kernel_widths()),
                         [](const auto& lanes) { return std::to_string(lanes.param); });

}  // namespace
}  // namespace sconce::testing
