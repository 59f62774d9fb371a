// Rewriting by example, and when it is not done.
#include "pipeline/rewrite_pattern.h"

#include "tests/support/graphs.h"

#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"

#include <gmock/gmock.h>

namespace sconce {
namespace {

using testing::graph_of;
using ::testing::HasSubstr;
using testing::message_of;

constexpr const char* kProduct =
    "graph(%x : Tensor):\n  %s : Tensor = aten::sigmoid(%x)\n  %r : Tensor = aten::mul(%x, %s)\n  return (%r)\n";
constexpr const char* kSilu = "graph(%x : Tensor):\n  %r : Tensor = aten::silu(%x)\n  return (%r)\n";

// The graph after the rewrite; empty when it did not change.
std::string rewritten(const RewritePattern& pattern, const std::string& text) {
  const auto graph = graph_of(text);
  const std::string before = print(*graph);
  const bool changed = pattern.apply(*graph);
  EXPECT_EQ(changed, print(*graph) != before);
  for (const Violation& violation : find_violations(*graph)) {
    ADD_FAILURE() << violation.message << "\n" << print(*graph);
  }
  EXPECT_FALSE(pattern.apply(*graph));
  return changed ? print(*parse(print(*graph))) : "";
}

std::string silu_in(const std::string& body, const std::string& inputs = "%a : Tensor, %b : Tensor") {
  return rewritten({kProduct, kSilu}, "graph(" + inputs + "):\n" + body);
}

TEST(RewritePattern, ReplacesWhatMatchesWhereverItStands) {
  const std::string text = silu_in(
      "  %s : Tensor = aten::sigmoid(%a)\n"
      "  %t : Tensor = aten::tanh(%b)\n"
      "  %m : Tensor = aten::mul(%a, %s)\n"
      "  %r : Tensor = prim::If(%c)\n"
      "    block0():\n"
      "      %u : Tensor = aten::sigmoid(%m)\n"
      "      %v : Tensor = aten::mul(%m, %u)\n"
      "      -> (%v)\n"
      "    block1():\n"
      "      -> (%t)\n"
      "  return (%r)\n",
      "%a : Tensor, %b : Tensor, %c : bool");
  EXPECT_THAT(text, ::testing::Not(HasSubstr("aten::sigmoid")));
  const auto graph = parse(text);
  EXPECT_EQ(testing::count_nodes(*graph, "aten::silu"), 2U);
  EXPECT_EQ(testing::count_nodes(*graph, "aten::tanh"), 1U);
}

TEST(RewritePattern, TheSameHoleIsTheSameValue) {
  EXPECT_EQ(silu_in("  %s : Tensor = aten::sigmoid(%a)\n  %m : Tensor = aten::mul(%b, %s)\n  return (%m)\n"), "");
}

TEST(RewritePattern, LeavesWhatSomebodyElseUses) {
  EXPECT_EQ(silu_in("  %s : Tensor = aten::sigmoid(%a)\n"
                    "  %m : Tensor = aten::mul(%a, %s)\n"
                    "  %r : Tensor = aten::add(%m, %s, %n)\n"
                    "  return (%r)\n",
                    "%a : Tensor, %n : int"),
            "");
}

TEST(RewritePattern, LeavesWhatReadsMemoryWrittenBetween) {
  const std::string first = "  %s : Tensor = aten::sigmoid(%a)\n";
  const std::string write = "  %w : Tensor = aten::neg_(%a)\n";
  const std::string last = "  %m : Tensor = aten::mul(%a, %s)\n";
  EXPECT_EQ(silu_in(first + write + last + "  return (%m)\n"), "");
  EXPECT_NE(silu_in(first + last + write + "  return (%m)\n"), "");
  EXPECT_NE(silu_in(write + first + last + "  return (%m)\n"), "");
}

TEST(RewritePattern, LeavesNodesOfTwoBlocks) {
  EXPECT_EQ(silu_in("  %s : Tensor = aten::sigmoid(%a)\n"
                    "  %r : Tensor = prim::If(%c)\n"
                    "    block0():\n"
                    "      %v : Tensor = aten::mul(%a, %s)\n"
                    "      -> (%v)\n"
                    "    block1():\n"
                    "      -> (%a)\n"
                    "  return (%r)\n",
                    "%a : Tensor, %c : bool"),
            "");
}

TEST(RewritePattern, ConstantsAndFactsAreConstraints) {
  const RewritePattern pattern(
      "graph(%x : Float(*, *)):\n  %n : int = prim::Constant[value=2]()\n  %r : Tensor = aten::pow(%x, %n)\n  return (%r)\n",
      "graph(%x : Float(*, *)):\n  %r : Tensor = aten::mul(%x, %x)\n  return (%r)\n");
  const auto power = [](const char* type, int exponent) {
    return std::string("graph(%a : ") + type + "):\n  %n : int = prim::Constant[value=" + std::to_string(exponent) +
           "]()\n  %r : Tensor = aten::pow(%a, %n)\n  return (%r)\n";
  };
  EXPECT_THAT(rewritten(pattern, power("Float(3, 4)", 2)), HasSubstr("aten::mul(%a, %a)"));
  EXPECT_EQ(rewritten(pattern, power("Float(3, 4)", 3)), "");
  EXPECT_EQ(rewritten(pattern, power("Double(3, 4)", 2)), "");
  EXPECT_EQ(rewritten(pattern, power("Float(3)", 2)), "");
  EXPECT_EQ(rewritten(pattern, power("Tensor", 2)), "");
}

// A view in the place of a copy, or the reverse, is observable by an operator that writes it and by a holder of it.
TEST(RewritePattern, AViewReplacesACopyOnlyWhereNobodyCanTell) {
  const RewritePattern pattern(
      "graph(%x : Tensor):\n  %t : Tensor = aten::t(%x)\n  %n : NoneType = prim::Constant()\n"
      "  %r : Tensor = aten::clone(%t, %n)\n  return (%r)\n",
      "graph(%x : Tensor):\n  %r : Tensor = aten::t(%x)\n  return (%r)\n");
  const std::string copy =
      "  %t : Tensor = aten::t(%a)\n  %n : NoneType = prim::Constant()\n  %r : Tensor = aten::clone(%t, %n)\n";
  EXPECT_NE(rewritten(pattern, "graph(%a : Tensor):\n" + copy + "  %s : Tensor = aten::tanh(%r)\n  return (%s)\n"), "");
  EXPECT_EQ(rewritten(pattern, "graph(%a : Tensor):\n" + copy + "  return (%r)\n"), "");
  EXPECT_EQ(rewritten(pattern, "graph(%a : Tensor):\n" + copy +
                                   "  %w : Tensor = aten::neg_(%r)\n  %s : Tensor = aten::tanh(%r)\n  return (%s)\n"),
            "");
  // The operand is written while the copy is alive.
  EXPECT_EQ(rewritten(pattern, "graph(%a : Tensor):\n" + copy +
                                   "  %w : Tensor = aten::neg_(%a)\n  %s : Tensor = aten::tanh(%r)\n  return (%s)\n"),
            "");
}

TEST(RewritePattern, SeveralOutputsAreReplacedTogether) {
  const RewritePattern pattern(
      "graph(%x : Tensor):\n  %a : Tensor = aten::sin(%x)\n  %b : Tensor = aten::mul(%a, %a)\n  return (%a, %b)\n",
      "graph(%x : Tensor):\n  %a : Tensor = aten::cos(%x)\n  %b : Tensor = aten::tan(%a)\n  return (%a, %b)\n");
  const std::string text = rewritten(pattern,
                                     "graph(%x : Tensor):\n  %s : Tensor = aten::sin(%x)\n"
                                     "  %m : Tensor = aten::mul(%s, %s)\n  %r : Tensor = aten::matmul(%s, %m)\n"
                                     "  return (%r)\n");
  EXPECT_THAT(text, HasSubstr("aten::cos"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("aten::sin")));
  // A use between the two: the new value would come too late.
  EXPECT_EQ(rewritten(pattern,
                      "graph(%x : Tensor):\n  %s : Tensor = aten::sin(%x)\n  %e : Tensor = aten::exp(%s)\n"
                      "  %m : Tensor = aten::mul(%s, %s)\n  %r : Tensor = aten::matmul(%e, %m)\n  return (%r)\n"),
            "");
}

TEST(RewritePattern, TextsThatAreNoPatternAreExplained) {
  const auto refused = [](const std::string& pattern, const std::string& replacement = kSilu) {
    return message_of([&] { RewritePattern(pattern, replacement); });
  };
  EXPECT_THAT(refused("graph(%x : Tensor)\n"), HasSubstr("the pattern cannot be read: 2:1: expected"));
  EXPECT_THAT(refused("graph(%x : Tensor):\n  return (%x)\n"), HasSubstr("no node but constants"));
  EXPECT_THAT(refused("graph(%x : Tensor):\n  %r : Tensor = aten::neg_(%x)\n  return (%r)\n"), HasSubstr("effects"));
  EXPECT_THAT(refused("graph(%x : Tensor):\n  %y : Tensor = aten::exp(%x)\n  %r : Tensor = aten::neg(%x)\n  return (%r)\n"),
              HasSubstr("does not lead to its last one"));
  EXPECT_THAT(refused("graph(%x : Tensor, %y : int):\n  %r : Tensor = aten::neg(%x)\n  return (%r)\n"),
              HasSubstr("the same inputs and outputs"));
}

TEST(RewritePattern, OneThatMatchesItsOwnReplacementForEverIsAnError) {
  const RewritePattern pattern("graph(%x : Tensor):\n  %r : Tensor = aten::sin(%x)\n  return (%r)\n",
                               "graph(%x : Tensor):\n  %y : Tensor = aten::sin(%x)\n  %r : Tensor = aten::cos(%y)\n"
                               "  return (%r)\n");
  const auto graph = graph_of("graph(%a : Tensor):\n  %r : Tensor = aten::sin(%a)\n  return (%r)\n");
  EXPECT_THAT(message_of([&] { pattern.apply(*graph); }), HasSubstr("again and again"));
  // Three times as many matches in each sweep.
  const RewritePattern tripling("graph(%x : Tensor):\n  %r : Tensor = aten::sin(%x)\n  return (%r)\n",
                                "graph(%x : Tensor):\n  %y : Tensor = aten::sin(%x)\n  %z : Tensor = aten::sin(%y)\n"
                                "  %r : Tensor = aten::sin(%z)\n  return (%r)\n");
  const auto other = graph_of("graph(%a : Tensor):\n  %r : Tensor = aten::sin(%a)\n  return (%r)\n");
  EXPECT_THAT(message_of([&] { tripling.apply(*other); }), HasSubstr("again and again"));
}

}  // namespace
}  // namespace sconce
