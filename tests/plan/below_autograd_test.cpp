// Runs that leave autograd's layers out give what eager execution gives.
#include "tests/support/graphs.h"

#include "lower/lower.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

namespace sconce {
namespace {

using testing::agree;
using testing::graph_of;

at::Tensor triple_for_autograd(const at::Tensor& x) { return x * 3; }

TORCH_LIBRARY(sconce_plan_test, library) {
  library.def("triple_of_autograd(Tensor x) -> Tensor");
  library.def("triple_of_both(Tensor x) -> Tensor");
  library.def("pure_triple_of_both(Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(sconce_plan_test, Autograd, library) {
  library.impl("triple_of_autograd", triple_for_autograd);
  library.impl("triple_of_both", triple_for_autograd);
  library.impl("pure_triple_of_both", triple_for_autograd);
}
TORCH_LIBRARY_IMPL(sconce_plan_test, CompositeExplicitAutograd, library) {
  library.impl("triple_of_both", [](const at::Tensor& x) { return x * 3; });
  library.impl("pure_triple_of_both", [](const at::Tensor& x) { return x * 3; });
}

std::string graph_of_operator(const std::string& name) {
  return "graph(%a : Tensor):\n  %b : Tensor = " + name + "(%a)\n  return (%b)\n";
}

TEST(BelowAutograd, AnOperatorWhoseOnlyKernelIsAutogradsRunsWhereNothingRequiresGrad) {
  const at::Tensor a = at::ones({2});
  EXPECT_TRUE(agree(testing::run(graph_of_operator("sconce_plan_test::triple_of_autograd"), {a}).at(0), a * 3));
}

bool first_step_may_skip_autograd(const std::string& name, bool is_exact = false) {
  auto plan = lower(graph_of(graph_of_operator(name)), nullptr, nullptr, {.limits = {.is_exact = is_exact}});
  return (*plan)->steps()[0].step->may_skip_autograd();
}

TEST(BelowAutograd, RunsOperatorsWithAKernelForTheBackend) {
  EXPECT_FALSE(first_step_may_skip_autograd("sconce_plan_test::triple_of_autograd"));
  EXPECT_TRUE(first_step_may_skip_autograd("sconce_plan_test::pure_triple_of_both"));
  EXPECT_FALSE(first_step_may_skip_autograd("sconce_plan_test::triple_of_both"))
      << "its kernel for autograd may have effects";
  EXPECT_TRUE(first_step_may_skip_autograd("aten::tanh")) << "a kernel of the CPU's";
  EXPECT_TRUE(first_step_may_skip_autograd("aten::square")) << "a composite kernel";
}

TEST(BelowAutograd, ExactPlansRunNoCompositeOperators) {
  EXPECT_FALSE(first_step_may_skip_autograd("aten::square", /*is_exact=*/true));
  EXPECT_TRUE(first_step_may_skip_autograd("aten::tanh", /*is_exact=*/true)) << "no composite";
}

// %b = %a * CONSTANT, the constant a tensor that others may hold too.
std::unique_ptr<Graph> product_with(const at::Tensor& constant) {
  auto graph = graph_of("graph(%a : Tensor, %c : Tensor):\n  %b : Tensor = aten::mul(%a, %c)\n  return (%b)\n");
  Node* const mul = testing::find_node(*graph, "aten::mul");
  mul->set_input(1, graph->insert_constant(constant, mul));
  return graph;
}

TEST(BelowAutograd, RecordsTheGradientOfAConstantThatRequiresOne) {
  const at::Tensor constant = at::full({2}, 3.0).requires_grad_(true);
  const at::Tensor a = at::ones({2});
  const at::Tensor result = testing::run(*product_with(constant), {a, a}).at(0).toTensor();
  ASSERT_TRUE(result.requires_grad());
  result.sum().backward();
  EXPECT_TRUE(agree(constant.grad(), a));
}

TEST(BelowAutograd, RecordsTheGradientOfAConstantThatComesToRequireOne) {
  const at::Tensor constant = at::full({2}, 3.0);
  GraphExecutor executor(product_with(constant), "f", Options{});
  const at::Tensor a = at::ones({2});
  const auto requires_grad = [&] {
    std::vector<c10::IValue> stack = {a, a};
    executor.run(stack);
    return stack.at(0).toTensor().requires_grad();
  };
  EXPECT_FALSE(requires_grad());
  constant.requires_grad_(true);
  EXPECT_TRUE(requires_grad());
  constant.requires_grad_(false);
  EXPECT_FALSE(requires_grad());
}

TEST(BelowAutograd, RecordsTheGradientOfAConstantInAList) {
  const at::Tensor constant = at::full({2}, 3.0).requires_grad_(true);
  auto graph = graph_of(
      "graph(%a : Tensor, %l : Tensor[]):\n"
      "  %zero : int = prim::Constant[value=0]()\n"
      "  %c : Tensor = aten::stack(%l, %zero)\n"
      "  %b : Tensor = aten::mul(%c, %a)\n"
      "  return (%b)\n");
  Node* const stack = testing::find_node(*graph, "aten::stack");
  stack->set_input(0, graph->insert_constant(c10::List<at::Tensor>({constant}), stack));
  const at::Tensor a = at::ones({2});
  const std::vector<c10::IValue> results = testing::run(*graph, {a, c10::List<at::Tensor>({a})}, Options().optimize(true));
  EXPECT_TRUE(results.at(0).toTensor().requires_grad());
}

}  // namespace
}  // namespace sconce
