#include "analysis/memory/escapes.h"

#include "tests/support/graphs.h"

#include <gmock/gmock.h>

#include <set>

namespace sconce {
namespace {

using testing::graph_of;

std::set<std::string> escaping(const std::string& text, bool autograd = false) {
  const auto graph = graph_of(text);
  const AliasSets aliases(*graph);
  std::set<std::string> out;
  for (const Value* value : find_escaping_values(*graph, aliases, autograd)) {
    out.insert(value->name());
  }
  return out;
}

TEST(Escapes, AreOutputsAndWhatTheyView) {
  const auto out = escaping(
      "graph(%in : Tensor, %n : int):\n"
      "  %free : Tensor = aten::relu(%in)\n"
      "  %base : Tensor = aten::neg(%free)\n"
      "  %view : Tensor = aten::select(%base, %n, %n)\n"
      "  return (%view)\n");
  EXPECT_TRUE(out.contains("view"));
  EXPECT_TRUE(out.contains("base"));
  EXPECT_TRUE(out.contains("in"));
  EXPECT_FALSE(out.contains("free"));
  EXPECT_FALSE(out.contains("n"));
}

TEST(Escapes, AreWithAutogradAlsoOtherNamesOfWhatItMaySave) {
  const std::string text =
      "graph(%in : Tensor, %flag : bool):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %r : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      -> (%a)\n"
      "    block1():\n"
      "      -> (%a)\n"
      "  %list : Tensor[] = prim::ListConstruct(%a)\n"
      "  %u : Tensor = prim::ListUnpack(%list)\n"
      "  return (%in)\n";
  EXPECT_EQ(escaping(text), std::set<std::string>({"in"}));
  EXPECT_EQ(escaping(text, /*autograd=*/true), std::set<std::string>({"in", "a", "r", "u"}));
}

TEST(Escapes, AreWhatLiesInReturnedContainersAtAnyDepth) {
  const auto out = escaping(
      "graph(%in : Tensor, %k : str):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::relu(%in)\n"
      "  %c : Tensor = aten::relu(%in)\n"
      "  %list : Tensor[] = prim::ListConstruct(%a)\n"
      "  %more : Tensor[] = aten::append(%list, %b)\n"
      "  %t : (Tensor[], str) = prim::TupleConstruct(%list, %k)\n"
      "  %d : Dict(str, (Tensor[], str)) = prim::DictConstruct(%k, %t)\n"
      "  %own : Tensor[] = prim::ListConstruct(%c)\n"
      "  %i : int = prim::Constant[value=0]()\n"
      "  %e : Tensor = aten::__getitem__(%own, %i)\n"
      "  return (%d)\n");
  for (const char* name : {"a", "b", "list", "t", "d"}) {
    EXPECT_TRUE(out.contains(name)) << name;
  }
  EXPECT_FALSE(out.contains("c")) << "its list stays inside";
  EXPECT_FALSE(out.contains("e"));
}

TEST(Escapes, AreWhatIsStoredOutside) {
  const auto out = escaping(
      "graph(%self : __torch__.M, %list : Tensor[], %in : Tensor):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::relu(%in)\n"
      "  %c : Tensor = aten::relu(%in)\n"
      "  prim::SetAttr[name=\"state\"](%self, %a)\n"
      "  %l : Tensor[] = aten::append(%list, %b)\n"
      "  return ()\n");
  EXPECT_TRUE(out.contains("a"));
  EXPECT_TRUE(out.contains("b"));
  EXPECT_FALSE(out.contains("c"));
}

TEST(Escapes, AreWhatABranchOrLoopHandsToAnOutput) {
  const auto out = escaping(
      "graph(%in : Tensor, %flag : bool, %n : int):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::relu(%in)\n"
      "  %r : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      -> (%a)\n"
      "    block1():\n"
      "      %c : Tensor = aten::neg(%b)\n"
      "      -> (%c)\n"
      "  %l : Tensor = prim::Loop(%n, %flag, %r)\n"
      "    block0(%i : int, %v : Tensor):\n"
      "      %w : Tensor = aten::neg(%v)\n"
      "      -> (%flag, %w)\n"
      "  return (%l)\n");
  for (const char* name : {"a", "c", "r", "l", "v", "w"}) {
    EXPECT_TRUE(out.contains(name)) << name;
  }
  EXPECT_FALSE(out.contains("b"));
}

TEST(Escapes, AreAllOperandsAndResultsWhereAutogradRuns) {
  const std::string text =
      "graph(%in : Tensor):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::neg(%a)\n"
      "  %s : Tensor = aten::tanh(%b)\n"
      "  return (%s)\n";
  EXPECT_FALSE(escaping(text).contains("a"));
  EXPECT_TRUE(escaping(text, true).contains("a"));
  EXPECT_TRUE(escaping(text, true).contains("b"));
}

}  // namespace
}  // namespace sconce
