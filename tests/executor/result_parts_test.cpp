// The parts of a recorded forward: nodes that the same results depend on.
#include "executor/recorded_calls/result_parts.h"
#include "tests/support/graphs.h"

#include "ir/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sconce {
namespace {

using ::testing::ElementsAre;
using testing::graph_of;
using ::testing::HasSubstr;

// Returns the parts of a graph, all of whose tensor outputs bring gradients but the last `others`. The first input is an
// argument, the others are captured.
Expected<std::vector<ResultPart>> split(const Graph& graph, size_t others = 0) {
  const std::vector<const Value*> returned(graph.outputs().begin(), graph.outputs().end());
  const std::vector<const Value*> differentiable(returned.begin(), returned.end() - static_cast<std::ptrdiff_t>(others));
  return split_at_results(graph, 1, returned, differentiable);
}

// Returns "op op(operands) -> outputs" of each part, by the names of the forward's values.
std::vector<std::string> described(const std::vector<ResultPart>& parts) {
  std::vector<std::string> texts;
  for (const ResultPart& part : parts) {
    EXPECT_TRUE(find_violations(*part.graph).empty());
    std::string text;
    for (const Node* node : part.graph->body().nodes()) {
      if (node->opcode() != Opcode::kConstant) {
        text += std::string(node->kind().toUnqualString()) + " ";
      }
    }
    text.back() = '(';
    for (const Value* operand : part.operands) {
      text += operand->name() + " ";
    }
    text += "->";
    for (const Value* output : part.outputs) {
      text += " " + output->name();
    }
    texts.push_back(text + ")");
  }
  return texts;
}

TEST(ResultParts, HaveTheNodesThatTheSameResultsDependOn) {
  const auto graph = graph_of(
      "graph(%x : Tensor, %w : Tensor, %v : Tensor):\n"
      "  %a : Tensor = aten::mm(%x, %w)\n"
      "  %h : Tensor = aten::tanh(%a)\n"
      "  %z : Tensor = aten::cos(%x)\n"
      "  %y : Tensor = aten::mm(%h, %v)\n"
      "  return (%h, %z, %y)\n");
  const auto parts = split(*graph);
  ASSERT_TRUE(parts);
  EXPECT_THAT(described(*parts), ElementsAre("mm tanh(w -> h)", "cos(-> z)", "mm(h v -> y)"));
}

TEST(ResultParts, MakeViewsAndSizesAgain) {
  const auto graph = graph_of(
      "graph(%x : Tensor, %w : Tensor):\n"
      "  %one : int = prim::Constant[value=1]()\n"
      "  %a : Tensor = aten::sin(%x)\n"
      "  %t : Tensor = aten::t(%w)\n"
      "  %v : Tensor = aten::unsqueeze(%a, %one)\n"
      "  %h : Tensor = aten::matmul(%v, %t)\n"
      "  %y : Tensor = aten::mul(%v, %t)\n"
      "  return (%h, %y)\n");
  const auto parts = split(*graph);
  ASSERT_TRUE(parts);
  EXPECT_THAT(described(*parts), ElementsAre("sin(-> a)", "t unsqueeze matmul(a w -> h)", "t unsqueeze mul(a w -> y)"));
}

TEST(ResultParts, AreNoneWhereAllDependsOnTheSame) {
  const auto graph = graph_of(
      "graph(%x : Tensor, %w : Tensor):\n"
      "  %y : Tensor = aten::mm(%x, %w)\n"
      "  %n : Tensor = aten::isnan(%y)\n"
      "  return (%y, %n)\n");
  const auto parts = split(*graph, /*others=*/1);
  ASSERT_TRUE(parts);
  EXPECT_TRUE(parts->empty());
}

// `c` is written before `h` reads it. What no result depends on is in the last part.
TEST(ResultParts, FollowWrites) {
  const auto graph = graph_of(
      "graph(%x : Tensor, %count : Tensor):\n"
      "  %zero : int = prim::Constant[value=0]()\n"
      "  %one : int = prim::Constant[value=1]()\n"
      "  %false : bool = prim::Constant[value=0]()\n"
      "  %c : Tensor = aten::sin(%x)\n"
      "  %row : Tensor = aten::select(%c, %zero, %zero)\n"
      "  %other : Tensor = aten::cos(%x)\n"
      "  %written : Tensor = aten::copy_(%row, %other, %false)\n"
      "  %h : Tensor = aten::tanh(%c)\n"
      "  %counted : Tensor = aten::add_(%count, %one, %one)\n"
      "  return (%c, %h)\n");
  const auto parts = split(*graph);
  ASSERT_TRUE(parts);
  EXPECT_THAT(described(*parts), ElementsAre("sin select cos copy_(-> c)", "tanh add_(c count -> h)"));
}

// The parts of `a` and of `b` draw in turns.
TEST(ResultParts, AreRefusedWhereTheyDrawInTurns) {
  const auto graph = graph_of(
      "graph(%x : Tensor):\n"
      "  %none : NoneType = prim::Constant()\n"
      "  %p : Tensor = aten::rand_like(%x, %none, %none, %none, %none, %none)\n"
      "  %q : Tensor = aten::rand_like(%x, %none, %none, %none, %none, %none)\n"
      "  %r : Tensor = aten::rand_like(%x, %none, %none, %none, %none, %none)\n"
      "  %a : Tensor = aten::mul(%p, %r)\n"
      "  %b : Tensor = aten::mul(%x, %q)\n"
      "  return (%a, %b)\n");
  const auto parts = split(*graph);
  ASSERT_FALSE(parts);
  EXPECT_THAT(parts.refusal().reason, HasSubstr("in turns"));
}

TEST(ResultParts, AreLimited) {
  std::string text = "graph(%x : Tensor):\n";
  std::string results;
  for (int i = 0; i < 70; ++i) {
    const std::string before = i == 0 ? "%x" : "%h" + std::to_string(i - 1) + "y";
    text += "  %h" + std::to_string(i) + "y : Tensor = aten::tanh(" + before + ")\n";
    results += (i == 0 ? "%h" : ", %h") + std::to_string(i) + "y";
  }
  const auto parts = split(*graph_of(text + "  return (" + results + ")\n"));
  ASSERT_FALSE(parts);
  EXPECT_THAT(parts.refusal().reason, HasSubstr("more than 64 parts"));
}

}  // namespace
}  // namespace sconce
