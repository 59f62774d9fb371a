// A call in two parts, of which the second can be recorded.
#include "executor/split_call.h"
#include "tests/support/graphs.h"

#include "ir/text/print.h"
#include "ir/verify/verify.h"

#include <gtest/gtest.h>

#include <string>

namespace sconce {
namespace {

using testing::graph_of;

size_t count(const Graph& graph, const std::string& kind) {
  size_t found = 0;
  for_each_node(graph.body(), [&](const Node* node) { found += node->kind().toQualString() == kind ? 1 : 0; });
  return found;
}

TEST(SplitCall, CutsBehindTheLastNodeWhoseSizesDependOnElements) {
  const auto graph = graph_of(
      "graph(%x : Tensor):\n"
      "  %zero : int = prim::Constant[value=0]()\n"
      "  %n : int = aten::size(%x, %zero)\n"
      "  %p : Tensor = aten::nonzero(%x)\n"
      "  %y : Tensor = aten::tanh(%x)\n"
      "  %z : Tensor = aten::mul(%y, %n)\n"
      "  %q : Tensor = aten::select(%p, %zero, %zero)\n"
      "  return (%z, %q)\n");
  const auto parts = split_call(*graph);
  ASSERT_TRUE(parts);
  EXPECT_EQ(count(*parts->first, "aten::nonzero"), 1U);
  EXPECT_EQ(count(*parts->first, "aten::tanh"), 0U);
  EXPECT_EQ(parts->first->outputs().size(), 1U);
  EXPECT_EQ(count(*parts->rest, "aten::nonzero"), 0U);
  EXPECT_EQ(count(*parts->rest, "aten::size"), 1U) << "numbers are computed again";
  EXPECT_EQ(parts->rest->inputs().size(), 2U);
  EXPECT_EQ(parts->rest->outputs().size(), 2U);
  for (const Graph* part : {parts->first.get(), parts->rest.get()}) {
    for (const NamedCheck& check : structure_checks()) {
      std::vector<Violation> violations;
      check.check(*part, violations);
      EXPECT_TRUE(violations.empty()) << check.name << "\n" << print(*part);
    }
  }
}

// Indices that are found in the middle of a method, of an argument that nothing writes. What they are computed from may have
// a gradient, and is computed again in its place.
TEST(SplitCall, BringsIndicesForward) {
  const auto graph = graph_of(
      "graph(%x : Tensor, %kinds : Tensor, %r : Tensor):\n"
      "  %zero : int = prim::Constant[value=0]()\n"
      "  %true : bool = prim::Constant[value=1]()\n"
      "  %m : Tensor = aten::requires_grad_(%x, %true)\n"
      "  %y : Tensor = aten::tanh(%x)\n"
      "  %d : Tensor = aten::abs(%r)\n"
      "  %near : Tensor = aten::gt(%d, %zero)\n"
      "  %p : Tensor = aten::nonzero(%near)\n"
      "  %is : Tensor = aten::eq(%kinds, %zero)\n"
      "  %q : Tensor = aten::nonzero(%is)\n"
      "  %z : Tensor = aten::mul(%y, %d)\n"
      "  return (%z, %p, %q)\n");
  const auto parts = split_call(*graph);
  ASSERT_TRUE(parts);
  EXPECT_EQ(count(*parts->first, "aten::nonzero"), 2U);
  EXPECT_EQ(count(*parts->first, "aten::tanh"), 0U);
  EXPECT_EQ(count(*parts->first, "aten::requires_grad_"), 0U);
  EXPECT_EQ(parts->first->outputs().size(), 2U);
  EXPECT_EQ(count(*parts->rest, "aten::nonzero"), 0U);
  EXPECT_EQ(count(*parts->rest, "aten::abs"), 1U);
  EXPECT_EQ(count(*parts->rest, "aten::eq"), 0U);
}

TEST(SplitCall, LeavesIndicesWhereTheyAreThatAWriteChanges) {
  const auto graph = graph_of(
      "graph(%x : Tensor):\n"
      "  %zero : int = prim::Constant[value=0]()\n"
      "  %y : Tensor = aten::tanh(%x)\n"
      "  %w : Tensor = aten::relu_(%y)\n"
      "  %p : Tensor = aten::nonzero(%y)\n"
      "  %z : Tensor = aten::sin(%x)\n"
      "  return (%z, %p)\n");
  const auto parts = split_call(*graph);
  ASSERT_TRUE(parts);
  EXPECT_EQ(count(*parts->first, "aten::relu_"), 1U) << "cut after the last of them";
}

TEST(SplitCall, LeavesCallsWholeThatCanBeRecordedOrEndSo) {
  EXPECT_FALSE(split_call(*graph_of("graph(%x : Tensor):\n  %y : Tensor = aten::tanh(%x)\n  return (%y)\n")));
  EXPECT_FALSE(split_call(*graph_of("graph(%x : Tensor):\n  %y : Tensor = aten::nonzero(%x)\n  return (%y)\n")));
}

}  // namespace
}  // namespace sconce
