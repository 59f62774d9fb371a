// settle_autocast, which depends on the caller's autocast and therefore has no text file.
#include "passes/autocast/settle_autocast.h"

#include "tests/passes/autocast/under_autocast.h"
#include "tests/support/graphs.h"

#include "passes/autocast/lower_callers_autocast.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace sconce::testing {
namespace {

std::unique_ptr<Graph> lowered(const std::string& text, const CallersAutocast& autocast = kBFloat16) {
  auto graph = graph_of(text);
  lower_callers_autocast(*graph, autocast);
  propagate_facts(*graph);
  return graph;
}

TEST(SettleAutocast, LeavesTensorsThatAutocastLeaves) {
  for (const char* type : {"Double", "Long", "BFloat16"}) {
    const std::string text = "graph(%x : " + std::string(type) + R"((2, 2, requires_grad=0, device=cpu)):
  %y : Tensor = aten::mm(%x, %x)
  return (%y)
)";
    const auto graph = lowered(text);
    EXPECT_TRUE(settle_autocast(*graph, kBFloat16));
    EXPECT_EQ(find_node(*graph, "aten::mm")->input(0), graph->inputs()[0]) << type;
    EXPECT_EQ(count_nodes(*graph, "sconce::autocast_cast"), 0U) << type;
    EXPECT_FALSE(settle_autocast(*graph, kBFloat16)) << type;
  }
}

TEST(SettleAutocast, ConvertsTensorsThatAutocastCasts) {
  const std::string text = R"(
graph(%x : Float(2, 2, requires_grad=0, device=cpu), %w : Half(2, 2, requires_grad=0, device=cpu)):
  %y : Tensor = aten::mm(%x, %w)
  return (%y)
)";
  const auto graph = lowered(text);
  EXPECT_TRUE(settle_autocast(*graph, kBFloat16));
  expect_text(*graph, R"(
graph(%x : Float(2, 2, requires_grad=0, device=cpu), %w : Half(2, 2, requires_grad=0, device=cpu)):
  %3 : int = prim::Constant[value=15]()
  %7 : bool = prim::Constant[value=0]()
  %8 : NoneType = prim::Constant()
  %9 : BFloat16(2, 2, requires_grad=0, device=cpu) = aten::to(%x, %3, %7, %7, %8)
  %5 : int = prim::Constant[value=15]()
  %10 : bool = prim::Constant[value=0]()
  %11 : NoneType = prim::Constant()
  %12 : BFloat16(2, 2, requires_grad=0, device=cpu) = aten::to(%w, %5, %10, %10, %11)
  %y : BFloat16(2, 2, requires_grad=0, device=cpu) = aten::mm(%9, %12)
  return (%y)
)");
  expect_results_under_autocast(text, *graph, {at::randn({2, 2}), at::randn({2, 2}).to(at::kHalf)});
}

TEST(SettleAutocast, LeavesCastsOfTensorsOfUnknownDtype) {
  const std::string text = R"(
graph(%x : Tensor, %w : Float(2, 2, requires_grad=0, device=cpu)):
  %y : Tensor = aten::mm(%x, %w)
  return (%y)
)";
  const auto graph = lowered(text);
  EXPECT_TRUE(settle_autocast(*graph, kBFloat16));
  EXPECT_EQ(count_nodes(*graph, "sconce::autocast_cast"), 1U);
  EXPECT_EQ(count_nodes(*graph, "aten::to"), 1U);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    expect_results_under_autocast(text, *graph, {at::randn({2, 2}).to(dtype), at::randn({2, 2})});
  }
}

const char* const kTwoProductsOfALeaf = R"(
graph(%x : Float(2, 2, requires_grad=0, device=cpu), %w : Float(2, 2, requires_grad=1, device=cpu)):
  %r : Tensor = aten::relu(%x)
  %y : Tensor = aten::mm(%r, %w)
  %z : Tensor = aten::mm(%y, %w)
  return (%z)
)";

TEST(SettleAutocast, CastsALeafOnceForAllUses) {
  const auto graph = lowered(kTwoProductsOfALeaf);
  EXPECT_TRUE(settle_autocast(*graph, kBFloat16));
  expect_text(*graph, R"(
graph(%x : Float(2, 2, requires_grad=0, device=cpu), %w : Float(2, 2, requires_grad=1, device=cpu)):
  %16 : int = prim::Constant[value=15]()
  %17 : BFloat16(2, 2, requires_grad=1, device=cpu) = sconce::autocast_cast(%w, %16)
  %r : Float(2, 2, requires_grad=0, device=cpu) = aten::relu(%x)
  %5 : int = prim::Constant[value=15]()
  %13 : bool = prim::Constant[value=0]()
  %14 : NoneType = prim::Constant()
  %15 : BFloat16(2, 2, requires_grad=0, device=cpu) = aten::to(%r, %5, %13, %13, %14)
  %7 : int = prim::Constant[value=15]()
  %y : BFloat16(2, 2, device=cpu) = aten::mm(%15, %17)
  %9 : int = prim::Constant[value=15]()
  %11 : int = prim::Constant[value=15]()
  %z : BFloat16(2, 2, device=cpu) = aten::mm(%y, %17)
  return (%z)
)");
  expect_results_under_autocast(kTwoProductsOfALeaf, *graph, {at::randn({2, 2}), at::randn({2, 2}).set_requires_grad(true)});
}

TEST(SettleAutocast, KeepsNoCastsWhereTheCallerKeepsNone) {
  const CallersAutocast forgets = {.dtype = at::kBFloat16, .keeps_casts = false};
  const auto graph = lowered(kTwoProductsOfALeaf, forgets);
  EXPECT_TRUE(settle_autocast(*graph, forgets));
  EXPECT_EQ(count_nodes(*graph, "sconce::autocast_cast"), 0U);
  EXPECT_EQ(count_nodes(*graph, "aten::to"), 3U);
}

TEST(SettleAutocast, KeepsNoCastsOfResults) {
  const auto graph = lowered(R"(
graph(%w : Float(2, 2, requires_grad=1, device=cpu)):
  %s : Tensor = aten::sigmoid(%w)
  %y : Tensor = aten::mm(%s, %s)
  return (%y)
)");
  EXPECT_TRUE(settle_autocast(*graph, kBFloat16));
  EXPECT_EQ(count_nodes(*graph, "sconce::autocast_cast"), 0U);
  EXPECT_EQ(count_nodes(*graph, "aten::to"), 2U);
}

// Between the uses, the graph writes what the casts read.
TEST(SettleAutocast, CastsAWrittenTensorAtEachUse) {
  const auto graph = lowered(R"(
graph(%w : Float(2, 2, requires_grad=1, device=cpu), %one : int):
  %y : Tensor = aten::mm(%w, %w)
  %written : Tensor = aten::add_(%w, %one, %one)
  %z : Tensor = aten::mm(%w, %y)
  return (%y, %z)
)");
  settle_autocast(*graph, kBFloat16);
  const Node* second = find_value(*graph, "z")->node();
  ASSERT_EQ(second->input(0)->node()->kind(), autocast_cast_op().kind);
  EXPECT_EQ(second->input(0)->node()->input(0), graph->inputs()[0]);
  const Node* after = find_node(*graph, "aten::add_");
  while (after != nullptr && after != second->input(0)->node()) {
    after = after->next();
  }
  EXPECT_NE(after, nullptr) << "the second cast reads what was written";
}

TEST(SettleAutocast, LeavesJoinsThatPromoteAsAutocastDoes) {
  const std::string text = R"(
graph(%x : Float(2, requires_grad=0, device=cpu), %y : BFloat16(2, requires_grad=0, device=cpu)):
  %zero : int = prim::Constant[value=0]()
  %parts : Tensor[] = prim::ListConstruct(%x, %y)
  %joined : Tensor = aten::cat(%parts, %zero)
  return (%joined)
)";
  const auto graph = lowered(text);
  EXPECT_FALSE(settle_autocast(*graph, kBFloat16));
  expect_results_under_autocast(text, *graph, {at::randn({2}), at::randn({2}).to(at::kBFloat16)});
}

TEST(SettleAutocast, RunsJoinsWithAutocastOnThatItMayReject) {
  for (const char* type : {"Half(2, requires_grad=0, device=cpu)", "Tensor"}) {
    const auto graph = lowered("graph(%x : Float(2, requires_grad=0, device=cpu), %y : " + std::string(type) + R"():
  %zero : int = prim::Constant[value=0]()
  %parts : Tensor[] = prim::ListConstruct(%x, %y)
  %joined : Tensor = aten::cat(%parts, %zero)
  return (%joined)
)");
    EXPECT_TRUE(settle_autocast(*graph, kBFloat16)) << type;
    EXPECT_NE(find_node(*graph, "aten::cat")->attribute(attr::kAutocast), nullptr) << type;
    EXPECT_FALSE(settle_autocast(*graph, kBFloat16)) << type;
  }
}

}  // namespace
}  // namespace sconce::testing
