// Nodes that kernels refuse for the dtypes of their operands.
#include "tests/fusion/kernel_call.h"
#include "tests/support/graphs.h"

#include "fusion/group/form_groups.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace sconce::testing {
namespace {

constexpr const char* kBody = R"(
  %one : int = prim::Constant[value=1]()
  %last : int = prim::Constant[value=DIM]()
  %none : NoneType = prim::Constant()
  %a : Tensor = aten::mul(%x, %x)
  %b : Tensor = aten::add(%a, %x, %one)
  %q : Tensor = aten::floor_divide(%n, %n)
  %s : Tensor = aten::softmax(%x, %last, %none)
  %c : Tensor = aten::mul(%b, %b)
  %d : Tensor = aten::sub(%c, %a, %one)
  return (%d, %q, %s)
)";

// Returns how often kernels ran and were refused in a run of the graph with inputs of these types.
CountedKernels::Counts counts_of_run(const std::string& x, const std::string& n, const std::string& dim) {
  const at::NoGradGuard no_grad;
  CountedKernels kernels(kernel_widths().at(0));
  std::string text = "graph(%x : " + x + ", %n : " + n + "):" + kBody;
  text.replace(text.find("DIM"), 3, dim);
  const auto plan = plan_with_kernels(text, kernels);
  const at::Tensor values = at::rand({3, 4});
  torch::jit::Stack stack = {values, at::full({3, 4}, 7, at::kLong)};
  run_plan(*plan, stack, AutogradUse::kNone);
  EXPECT_TRUE(at::allclose(stack.at(0).toTensor(), (values * values + values).square() - values * values));
  EXPECT_TRUE(stack.at(1).toTensor().equal(at::ones({3, 4}, at::kLong)));
  return kernels.counts();
}

TEST(KnownDtypes, LeaveOutOneNodeInsteadOfTheGroup) {
  const auto known = counts_of_run("Float(3, 4)", "Long(3, 4)", "0");
  EXPECT_EQ(known.refused, 0U);
  EXPECT_EQ(known.runs, 1U) << "the nodes before and after those that no kernel computes";
}

TEST(KnownDtypes, KeepNodesOfWhichNothingIsKnown) {
  const auto unknown = counts_of_run("Tensor", "Tensor", "0");
  EXPECT_EQ(unknown.refused, 1U);
  EXPECT_EQ(unknown.runs, 0U);
}

// Returns whether an operator on a value of this type is in a group.
bool forms_group(const std::string& type) {
  return form_groups(*graph_of("graph(%x : " + type + "):\n  %y : Tensor = aten::sigmoid(%x)\n  return (%y)\n"));
}

TEST(KnownDtypes, KeepHalfPrecisionOnGpusOnly) {
  EXPECT_TRUE(forms_group("Half(3, 4, device=cuda:0)"));
  EXPECT_FALSE(forms_group("Half(3, 4, device=cpu)"));
  EXPECT_FALSE(forms_group("Half(3, 4)"));
  EXPECT_TRUE(forms_group("Tensor"));
}

TEST(KnownDtypes, KeepReductionsOfTheLastDimension) { EXPECT_EQ(counts_of_run("Float(3, 4)", "Long(3, 4)", "1").runs, 1U); }

}  // namespace
}  // namespace sconce::testing
