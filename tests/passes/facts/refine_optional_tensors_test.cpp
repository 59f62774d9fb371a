// refine_optional_tensors, which depends on what is assumed of a call and therefore has no text file.
#include "passes/facts/refine_optional_tensors.h"

#include "tests/support/graphs.h"

#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace sconce::testing {
namespace {

TensorFacts facts_of_vector() { return facts_of(at::ones({4})); }

InputAssumptions assuming(const Value& value, AbstractValue what) {
  InputAssumptions given;
  given.values.emplace(&value, std::move(what));
  return given;
}

void expect_refined(Graph& graph, const InputAssumptions& given, const std::string& expected) {
  EXPECT_TRUE(refine_optional_tensors(graph, given));
  for (const Violation& violation : find_violations(graph)) {
    ADD_FAILURE() << violation.check << ": " << violation.message << "\n" << print(graph);
  }
  EXPECT_EQ(print(*parse(print(graph))), print(*parse(expected)));
}

void expect_unrefined(Graph& graph, const InputAssumptions& given) {
  const std::string before = print(graph);
  EXPECT_FALSE(refine_optional_tensors(graph, given));
  EXPECT_EQ(print(graph), before);
}

constexpr const char* kOptionalBias = R"(
graph(%x : Tensor, %w : Tensor, %bias : Tensor?):
  %y : Tensor = aten::linear(%x, %w, %bias)
  %again : Tensor = aten::linear(%y, %w, %bias)
  return (%again, %bias)
)";

TEST(RefineOptionalTensors, GivesUsersOfAnInputATensor) {
  const auto graph = graph_of(kOptionalBias);
  expect_refined(*graph, assuming(*graph->inputs()[2], AbstractValue::tensor(facts_of_vector())), R"(
graph(%x : Tensor, %w : Tensor, %bias : Tensor?):
  %5 : Float(4, strides=[1], requires_grad=0, device=cpu) = prim::unchecked_cast(%bias)
  %y : Tensor = aten::linear(%x, %w, %5)
  %again : Tensor = aten::linear(%y, %w, %5)
  return (%again, %5)
)");
  const std::vector<c10::IValue> arguments = {at::randn({2, 4}), at::randn({4, 4}), at::randn({4})};
  EXPECT_TRUE(agree(run(*graph, arguments), run(kOptionalBias, arguments)));
}

TEST(RefineOptionalTensors, GivesUsersOfAnAttributeATensor) {
  const auto graph = graph_of(R"(
graph(%self : __torch__.Layer, %x : Tensor, %w : Tensor, %flag : bool):
  %r : Tensor = prim::If(%flag)
    block0():
      %bias : Tensor? = prim::GetAttr[name="bias"](%self)
      %y : Tensor = aten::linear(%x, %w, %bias)
      -> (%y)
    block1():
      -> (%x)
  return (%r)
)");
  const Node* read = find_node(*graph, "prim::GetAttr");
  expect_refined(*graph, assuming(*read->output(), AbstractValue::tensor(facts_of_vector())), R"(
graph(%self : __torch__.Layer, %x : Tensor, %w : Tensor, %flag : bool):
  %r : Tensor = prim::If(%flag)
    block0():
      %bias : Tensor? = prim::GetAttr[name="bias"](%self)
      %7 : Float(4, strides=[1], requires_grad=0, device=cpu) = prim::unchecked_cast(%bias)
      %y : Tensor = aten::linear(%x, %w, %7)
      -> (%y)
    block1():
      -> (%x)
  return (%r)
)");
}

TEST(RefineOptionalTensors, LeavesWhatIsNotKnownToBeATensor) {
  const auto graph = graph_of(kOptionalBias);
  expect_unrefined(*graph, {});
  expect_unrefined(*graph, assuming(*graph->inputs()[2], AbstractValue::constant(c10::IValue())));
}

TEST(RefineOptionalTensors, LeavesTensorsListsAndValuesWithoutUses) {
  const auto graph = graph_of(R"(
graph(%x : Tensor, %list : Tensor?[], %unused : Tensor?):
  %zero : int = prim::Constant[value=0]()
  %first : Tensor? = aten::__getitem__(%list, %zero)
  %y : Tensor = aten::relu(%x)
  return (%y, %first)
)");
  for (const Value* input : graph->inputs()) {
    expect_unrefined(*graph, assuming(*input, AbstractValue::tensor(facts_of_vector())));
  }
  expect_unrefined(*graph,
                   assuming(*graph->inputs()[1], AbstractValue::sequence({AbstractValue::tensor(facts_of_vector())})));
}

}  // namespace
}  // namespace sconce::testing
