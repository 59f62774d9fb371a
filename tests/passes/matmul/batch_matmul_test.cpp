// What batch_matmul does about constants, which the text form has for small tensors only.
#include "tests/support/graphs.h"

#include "ir/verify/verify.h"
#include "passes/matmul/batch_matmul.h"
#include "passes/matmul/decompose_ops.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/simplify/propagate_facts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sconce {
namespace {

using testing::agree;
using testing::count_nodes;
using testing::graph_of;

// With constants in the place of the inputs after the first.
std::unique_ptr<Graph> with_constants(const std::string& text, const std::vector<at::Tensor>& constants) {
  auto graph = graph_of(text);
  Node* first = graph->body().first();
  for (size_t i = constants.size(); i > 0; --i) {
    graph->inputs()[i]->replace_all_uses_with(graph->insert_constant(constants[i - 1], first));
    graph->body().remove_param(i);
  }
  return graph;
}

struct Batched {
  bool changed;
  std::unique_ptr<Graph> before;
  std::unique_ptr<Graph> after;
};

Batched batched(const std::string& text, const std::vector<at::Tensor>& constants) {
  Batched result;
  result.before = with_constants(text, constants);
  result.after = result.before->clone();
  propagate_facts(*result.after);
  decompose_ops(*result.after);
  propagate_facts(*result.after);
  result.changed = batch_matmul(*result.after);
  EXPECT_FALSE(batch_matmul(*result.after)) << "not idempotent";
  eliminate_dead_nodes(*result.after);
  for (const Violation& violation : find_violations(*result.after)) {
    ADD_FAILURE() << violation.check << ": " << violation.message;
  }
  return result;
}

void expect_same_results(const Batched& graphs, const at::Tensor& x) {
  EXPECT_TRUE(agree(testing::run(*graphs.before, {x}), testing::run(*graphs.after, {x}), 1e-5));
}

constexpr const char* kTwoLinears = R"(
graph(%x : Float(16, 32, requires_grad=0, device=cpu), %v : Tensor, %w : Tensor, %b : Tensor):
  %p : Tensor = aten::linear(%x, %v, %b)
  %r : Tensor = aten::relu(%p)
  %q : Tensor = aten::linear(%x, %w, %b)
  %s : Tensor = aten::sigmoid(%q)
  return (%r, %s)
)";

TEST(BatchMatmul, MultipliesByConstantsSideBySide) {
  const auto graphs = batched(kTwoLinears, {at::randn({8, 32}), at::randn({8, 32}), at::randn({8})});
  EXPECT_TRUE(graphs.changed);
  EXPECT_EQ(count_nodes(*graphs.after, "aten::mm"), 1);
  EXPECT_EQ(count_nodes(*graphs.after, "aten::cat"), 0) << "constants are joined when the graph is compiled";
  EXPECT_EQ(count_nodes(*graphs.after, "aten::chunk"), 1);
  expect_same_results(graphs, at::randn({16, 32}));
}

TEST(BatchMatmul, SplitsWhereTheConstantsHaveDifferentSizes) {
  const auto graphs = batched(kTwoLinears, {at::randn({8, 32}), at::randn({12, 32}), at::randn({1})});
  EXPECT_TRUE(graphs.changed);
  EXPECT_EQ(count_nodes(*graphs.after, "aten::split_with_sizes"), 1);
  expect_same_results(graphs, at::randn({16, 32}));
}

TEST(BatchMatmul, LeavesColumnsOfOneElementWhoseStridesAreAmbiguous) {
  EXPECT_FALSE(batched(kTwoLinears, {at::randn({1, 32}), at::randn({1, 32}), at::randn({1})}).changed);
}

TEST(BatchMatmul, LeavesWideMatricesWhereNothingIsGained) {
  EXPECT_FALSE(batched(kTwoLinears, {at::randn({512, 32}), at::randn({512, 32}), at::randn({512})}).changed);
}

TEST(BatchMatmul, LeavesColumnsThatAreViewed) {
  const auto graphs = batched(R"(
graph(%x : Float(16, 32, requires_grad=0, device=cpu), %v : Tensor, %w : Tensor):
  %n : int = prim::Constant[value=128]()
  %sizes : int[] = prim::ListConstruct(%n)
  %p : Tensor = aten::mm(%x, %v)
  %f : Tensor = aten::view(%p, %sizes)
  %r : Tensor = aten::relu(%f)
  %q : Tensor = aten::mm(%x, %w)
  %s : Tensor = aten::sigmoid(%q)
  return (%r, %s)
)",
                              {at::randn({32, 8}), at::randn({32, 8})});
  EXPECT_FALSE(graphs.changed);
  expect_same_results(graphs, at::randn({16, 32}));
}

TEST(BatchMatmul, BatchesOfMatricesByConstantsToo) {
  const auto graphs = batched(R"(
graph(%x : Float(4, 16, 32, requires_grad=0, device=cpu), %v : Tensor, %w : Tensor, %b : Tensor):
  %p : Tensor = aten::linear(%x, %v, %b)
  %r : Tensor = aten::relu(%p)
  %q : Tensor = aten::linear(%x, %w, %b)
  %s : Tensor = aten::sigmoid(%q)
  return (%r, %s)
)",
                              {at::randn({8, 32}), at::randn({8, 32}), at::randn({8})});
  EXPECT_TRUE(graphs.changed);
  EXPECT_EQ(count_nodes(*graphs.after, "aten::matmul"), 1);
  expect_same_results(graphs, at::randn({4, 16, 32}));
}

// Autograd keeps the constants for the gradient of %x: one matrix instead of two.
TEST(BatchMatmul, GivesTheGradientOfTheSharedOperand) {
  const auto graphs = batched(R"(
graph(%x : Float(16, 32, device=cpu), %v : Tensor, %w : Tensor, %b : Tensor):
  %p : Tensor = aten::linear(%x, %v, %b)
  %r : Tensor = aten::relu(%p)
  %q : Tensor = aten::linear(%x, %w, %b)
  %s : Tensor = aten::sigmoid(%q)
  return (%r, %s)
)",
                              {at::randn({8, 32}), at::randn({8, 32}), at::randn({8})});
  EXPECT_TRUE(graphs.changed);
  const at::Tensor values = at::randn({16, 32});
  std::vector<at::Tensor> gradients;
  for (const Graph* graph : {graphs.before.get(), graphs.after.get()}) {
    const at::Tensor x = values.clone().set_requires_grad(true);
    const auto outputs = testing::run(*graph, {x});
    (outputs[0].toTensor().square().sum() + outputs[1].toTensor().sum()).backward();
    gradients.push_back(x.grad());
  }
  EXPECT_TRUE(at::allclose(gradients[0], gradients[1], 1e-4, 1e-5));
}

// An LSTM's gates: x·v + h·w + b, for any number of rows.
TEST(BatchMatmul, AddsUpProductsByConstantsForAnyNumberOfRows) {
  const auto graphs = batched(R"(
graph(%x : Float(SS(-1), 8, requires_grad=0, device=cpu), %v : Tensor, %w : Tensor, %b : Tensor,
      %h : Float(SS(-1), 16, requires_grad=0, device=cpu)):
  %one : int = prim::Constant[value=1]()
  %p : Tensor = aten::linear(%x, %v, %b)
  %q : Tensor = aten::linear(%h, %w, %b)
  %r : Tensor = aten::add(%p, %q, %one)
  return (%r)
)",
                              {at::randn({64, 8}), at::randn({64, 16}), at::randn({64})});
  EXPECT_TRUE(graphs.changed);
  EXPECT_EQ(count_nodes(*graphs.after, "aten::mm"), 1);
  EXPECT_EQ(count_nodes(*graphs.after, "aten::cat"), 1) << "of %x and %h alone";
  const std::vector<c10::IValue> arguments = {at::randn({3, 8}), at::randn({3, 16})};
  EXPECT_TRUE(agree(testing::run(*graphs.before, arguments), testing::run(*graphs.after, arguments), 1e-5));
}

}  // namespace
}  // namespace sconce
