// lower_callers_autocast and lower_known_operands, which depend on the caller's autocast and therefore have no text file.
#include "passes/autocast/lower_callers_autocast.h"

#include "tests/passes/autocast/under_autocast.h"
#include "tests/support/graphs.h"

#include "ir/text/print.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <gtest/gtest.h>

#include <string>

namespace sconce::testing {
namespace {

TEST(LowerCallersAutocast, CastsTheOperandsOfAProduct) {
  const std::string text = R"(
graph(%x : Tensor, %w : Tensor):
  %y : Tensor = aten::mm(%x, %w)
  %z : Tensor = aten::relu(%y)
  return (%z)
)";
  const auto graph = graph_of(text);
  EXPECT_TRUE(lower_callers_autocast(*graph, kBFloat16));
  expect_text(*graph, R"(
graph(%x : Tensor, %w : Tensor):
  %4 : int = prim::Constant[value=15]()
  %5 : Tensor = sconce::autocast_cast(%x, %4)
  %6 : int = prim::Constant[value=15]()
  %7 : Tensor = sconce::autocast_cast(%w, %6)
  %y : Tensor = aten::mm(%5, %7)
  %z : Tensor = aten::relu(%y)
  return (%z)
)");
  expect_results_under_autocast(text, *graph, {at::randn({2, 3}), at::randn({3, 2})});
  expect_results_under_autocast(text, *graph, {at::randn({2, 3}, at::kDouble), at::randn({3, 2}, at::kDouble)});
}

TEST(LowerCallersAutocast, LeavesOperatorsThatAutocastLeaves) {
  const auto graph = graph_of(R"(
graph(%x : Tensor, %y : Tensor, %one : int):
  %sum : Tensor = aten::add(%x, %y, %one)
  %t : Tensor = aten::t(%sum)
  %parts : Tensor[] = prim::ListConstruct(%t, %x)
  %joined : Tensor = aten::cat(%parts, %one)
  return (%joined)
)");
  const std::string before = print(*graph);
  EXPECT_FALSE(lower_callers_autocast(*graph, kBFloat16));
  EXPECT_EQ(print(*graph), before);
}

TEST(LowerCallersAutocast, CastsToFloat32WhatAutocastComputesInIt) {
  const std::string text = R"(
graph(%x : Tensor, %y : Tensor):
  %mean : int = prim::Constant[value=1]()
  %loss : Tensor = aten::mse_loss(%x, %y, %mean)
  return (%loss)
)";
  const auto graph = graph_of(text);
  EXPECT_TRUE(lower_callers_autocast(*graph, kBFloat16));
  expect_text(*graph, R"(
graph(%x : Tensor, %y : Tensor):
  %mean : int = prim::Constant[value=1]()
  %4 : int = prim::Constant[value=6]()
  %5 : Tensor = sconce::autocast_cast(%x, %4)
  %6 : int = prim::Constant[value=6]()
  %7 : Tensor = sconce::autocast_cast(%y, %6)
  %loss : Tensor = aten::mse_loss(%5, %7, %mean)
  return (%loss)
)");
  expect_results_under_autocast(text, *graph, {at::randn({4}, at::kBFloat16), at::randn({4}, at::kBFloat16)});
  expect_results_under_autocast(text, *graph, {at::randn({4}, at::kDouble), at::randn({4})});
}

TEST(LowerCallersAutocast, CastsInNestedBlocks) {
  const std::string text = R"(
graph(%x : Tensor, %flag : bool):
  %r : Tensor = prim::If(%flag)
    block0():
      %p : Tensor = aten::matmul(%x, %x)
      -> (%p)
    block1():
      -> (%x)
  return (%r)
)";
  const auto graph = graph_of(text);
  EXPECT_TRUE(lower_callers_autocast(*graph, kBFloat16));
  expect_text(*graph, R"(
graph(%x : Tensor, %flag : bool):
  %r : Tensor = prim::If(%flag)
    block0():
      %4 : int = prim::Constant[value=15]()
      %5 : Tensor = sconce::autocast_cast(%x, %4)
      %6 : int = prim::Constant[value=15]()
      %7 : Tensor = sconce::autocast_cast(%x, %6)
      %p : Tensor = aten::matmul(%5, %7)
      -> (%p)
    block1():
      -> (%x)
  return (%r)
)");
  for (const bool flag : {true, false}) {
    expect_results_under_autocast(text, *graph, {at::randn({3, 3}), flag});
  }
}

TEST(LowerCallersAutocast, RunsWithAutocastOnWhatCallsOtherOperators) {
  const std::string text = R"(
graph(%x : Tensor, %y : Tensor):
  %none : NoneType = prim::Constant()
  %equation : str = prim::Constant[value="ij,jk->ik"]()
  %operands : Tensor[] = prim::ListConstruct(%x, %y)
  %product : Tensor = aten::einsum(%equation, %operands, %none)
  return (%product)
)";
  const auto graph = graph_of(text);
  EXPECT_TRUE(lower_callers_autocast(*graph, kBFloat16));
  expect_text(*graph, R"(
graph(%x : Tensor, %y : Tensor):
  %none : NoneType = prim::Constant()
  %equation : str = prim::Constant[value="ij,jk->ik"]()
  %operands : Tensor[] = prim::ListConstruct(%x, %y)
  %product : Tensor = aten::einsum[autocast=1](%equation, %operands, %none)
  return (%product)
)");
  expect_results_under_autocast(text, *graph, {at::randn({2, 3}), at::randn({3, 2})});
}

TEST(LowerCallersAutocast, RunsWithAutocastOnWhatTellsWhetherItIs) {
  const std::string text = R"(
graph(%x : Tensor):
  %on : bool = aten::is_autocast_cpu_enabled()
  return (%on)
)";
  const auto graph = graph_of(text);
  EXPECT_TRUE(lower_callers_autocast(*graph, kBFloat16));
  expect_text(*graph, R"(
graph(%x : Tensor):
  %on : bool = aten::is_autocast_cpu_enabled[autocast=1]()
  return (%on)
)");
  expect_results_under_autocast(text, *graph, {at::randn({2})});
}

TEST(LowerCallersAutocast, LeavesPadsWithAConstantAndNoOthers) {
  for (const std::string mode : {"constant", "reflect"}) {
    const std::string text = R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %widths : int[] = prim::Constant[value=[1, 1]]()
  %mode : str = prim::Constant[value=")" +
                             mode + R"("]()
  %padded : Tensor = aten::pad(%x, %widths, %mode, %none)
  return (%padded)
)";
    const auto graph = graph_of(text);
    EXPECT_EQ(lower_callers_autocast(*graph, kBFloat16), mode == "reflect");
    EXPECT_EQ(find_node(*graph, "aten::pad")->attribute(attr::kAutocast) != nullptr, mode == "reflect");
    expect_results_under_autocast(text, *graph, {at::randn({2, 3, 4}).to(at::kBFloat16)});
  }
}

// A bias that may be None waits until it is known to be a tensor.
TEST(LowerKnownOperands, CastsOperandsOnceOptionalTensorsAreKnown) {
  const std::string text = R"(
graph(%x : Tensor, %w : Tensor, %bias : Tensor?):
  %y : Tensor = aten::linear(%x, %w, %bias)
  return (%y)
)";
  const auto graph = graph_of(text);
  EXPECT_TRUE(lower_callers_autocast(*graph, kBFloat16));
  expect_text(*graph, R"(
graph(%x : Tensor, %w : Tensor, %bias : Tensor?):
  %y : Tensor = aten::linear[autocast=1](%x, %w, %bias)
  return (%y)
)");
  EXPECT_FALSE(lower_known_operands(*graph, kBFloat16)) << "the bias is not known yet";
  expect_results_under_autocast(text, *graph, {at::randn({2, 3}), at::randn({4, 3}), c10::IValue()});

  Node* cast = graph->create(prim::unchecked_cast, {graph->inputs()[2]}, 0);
  graph->inputs()[2]->replace_all_uses_with(cast->add_output(c10::TensorType::get()));
  cast->set_input(0, graph->inputs()[2]);
  cast->insert_before(graph->body().first());
  EXPECT_TRUE(lower_known_operands(*graph, kBFloat16));
  expect_text(*graph, R"(
graph(%x : Tensor, %w : Tensor, %bias : Tensor?):
  %4 : Tensor = prim::unchecked_cast(%bias)
  %6 : int = prim::Constant[value=15]()
  %7 : Tensor = sconce::autocast_cast(%x, %6)
  %8 : int = prim::Constant[value=15]()
  %9 : Tensor = sconce::autocast_cast(%w, %8)
  %10 : int = prim::Constant[value=15]()
  %11 : Tensor = sconce::autocast_cast(%4, %10)
  %5 : Tensor = aten::linear(%7, %9, %11)
  return (%5)
)");
  expect_results_under_autocast(text, *graph, {at::randn({2, 3}), at::randn({4, 3}), at::randn({4})});
  EXPECT_FALSE(lower_known_operands(*graph, kBFloat16)) << "no node is left that runs with autocast on";
}

}  // namespace
}  // namespace sconce::testing
