#include "lower/liveness.h"

#include "tests/support/graphs.h"

#include <gmock/gmock.h>

namespace sconce {
namespace {

using testing::find_node;
using testing::find_value;
using testing::graph_of;
using ::testing::UnorderedElementsAre;

std::vector<std::string> names(const std::vector<const Value*>& values) {
  std::vector<std::string> out;
  for (const Value* value : values) {
    out.push_back(value->name());
  }
  return out;
}

TEST(Liveness, OfSeveralEqualInputsOnlyTheLastIsTheLastUse) {
  const auto graph = graph_of("graph(%a : Tensor):\n  %l : Tensor[] = prim::ListConstruct(%a, %a, %a)\n  return (%l)\n");
  const Liveness liveness(*graph);
  const Node& node = *find_node(*graph, "prim::ListConstruct");
  EXPECT_FALSE(liveness.is_last_use(node, 0));
  EXPECT_FALSE(liveness.is_last_use(node, 1));
  EXPECT_TRUE(liveness.is_last_use(node, 2));
  EXPECT_TRUE(liveness.is_last_use(*graph->body().return_node(), 0));
}

TEST(Liveness, AValueReturnedTwiceDiesAtTheSecond) {
  const auto graph = graph_of("graph(%a : Tensor):\n  return (%a, %a)\n");
  const Liveness liveness(*graph);
  EXPECT_FALSE(liveness.is_last_use(*graph->body().return_node(), 0));
  EXPECT_TRUE(liveness.is_last_use(*graph->body().return_node(), 1));
}

TEST(Liveness, UnusedOutputsDieBehindTheirNode) {
  const auto graph = graph_of("graph(%l : Tensor[]):\n  %a : Tensor, %b : Tensor = prim::ListUnpack(%l)\n  return (%b)\n");
  EXPECT_THAT(names(Liveness(*graph).dead_after(*find_node(*graph, "prim::ListUnpack"))), UnorderedElementsAre("a"));
}

TEST(Liveness, AValueOfOneBranchDiesOnEntryOfTheOther) {
  const auto graph = graph_of(
      "graph(%a : Tensor, %b : Tensor, %flag : bool):\n"
      "  %r : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      %x : Tensor = aten::neg(%a)\n"
      "      -> (%x)\n"
      "    block1():\n"
      "      -> (%b)\n"
      "  return (%r)\n");
  const Liveness liveness(*graph);
  const Node& branch = *find_node(*graph, "prim::If");
  EXPECT_THAT(names(liveness.dead_on_entry(*branch.block(0))), UnorderedElementsAre("b"));
  EXPECT_THAT(names(liveness.dead_on_entry(*branch.block(1))), UnorderedElementsAre("a"));
  EXPECT_TRUE(liveness.is_last_use(*find_node(*graph, "aten::neg"), 0));
  EXPECT_TRUE(liveness.is_last_use(*branch.block(1)->return_node(), 0));
}

TEST(Liveness, AValueUsedBehindABranchDoesNotDieInIt) {
  const auto graph = graph_of(
      "graph(%a : Tensor, %flag : bool):\n"
      "  %r : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      %x : Tensor = aten::neg(%a)\n"
      "      -> (%x)\n"
      "    block1():\n"
      "      -> (%a)\n"
      "  %s : Tensor = aten::mul(%r, %a)\n"
      "  return (%s)\n");
  const Liveness liveness(*graph);
  const Node& branch = *find_node(*graph, "prim::If");
  EXPECT_FALSE(liveness.is_last_use(*find_node(*graph, "aten::neg"), 0));
  EXPECT_FALSE(liveness.is_last_use(*branch.block(1)->return_node(), 0));
  EXPECT_TRUE(liveness.is_last_use(*find_node(*graph, "aten::mul"), 1));
}

TEST(Liveness, AValueFromOutsideDiesBehindTheLoopThatUsesItAndNeverInside) {
  const auto graph = graph_of(
      "graph(%a : Tensor, %k : Tensor, %n : int, %yes : bool):\n"
      "  %r : Tensor = prim::Loop(%n, %yes, %a)\n"
      "    block0(%i : int, %v : Tensor):\n"
      "      %w : Tensor = aten::mul(%v, %k)\n"
      "      -> (%yes, %w)\n"
      "  return (%r)\n");
  const Liveness liveness(*graph);
  const Node& mul = *find_node(*graph, "aten::mul");
  EXPECT_TRUE(liveness.is_last_use(mul, 0)) << "the carried value is the iteration's own";
  EXPECT_FALSE(liveness.is_last_use(mul, 1)) << "the next iteration uses it";
  EXPECT_THAT(names(liveness.dead_after(*find_node(*graph, "prim::Loop"))), UnorderedElementsAre("k", "yes"));
  EXPECT_THAT(names(liveness.dead_on_entry(*find_node(*graph, "prim::Loop")->block(0))), UnorderedElementsAre("i"));
}

}  // namespace
}  // namespace sconce
