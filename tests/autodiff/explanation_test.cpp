// Why operators that gradients flow through are in no differentiable subgraph.
#include "tests/support/graphs.h"

#include "autodiff/differentiate.h"
#include "load/convert.h"

#include <sconce/graph_executor.h>
#include <sconce/module.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <map>

namespace sconce {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

using Reasons = std::map<std::string, NotDifferentiated>;

GradientExplanation explained(const std::string& text, size_t min_nodes = 1) {
  const std::unique_ptr<Graph> graph = testing::graph_of(text);
  GradientExplanation explanation;
  differentiate(*graph, min_nodes, &explanation);
  size_t nodes = 0;
  for (const NotDifferentiatedExplanation& entry : explanation.not_differentiated) {
    EXPECT_STRNE(to_string(entry.reason), "unknown");
    nodes += entry.nodes;
  }
  EXPECT_EQ(nodes, explanation.outside);
  return explanation;
}

Reasons reasons_of(const std::string& text, size_t min_nodes = 1) {
  Reasons reasons;
  for (const NotDifferentiatedExplanation& entry : explained(text, min_nodes).not_differentiated) {
    EXPECT_TRUE(reasons.emplace(entry.op, entry.reason).second) << entry.op;
  }
  return reasons;
}

TEST(DifferentiationReasons, OperatorsInsideAreCountedAndHaveNone) {
  const GradientExplanation explanation = explained(R"(graph(%x : Float(4, 4, device=cpu)):
  %a : Float(4, 4, device=cpu) = aten::tanh(%x)
  %b : Float(4, 4, device=cpu) = aten::exp(%a)
  return (%b)
)");
  EXPECT_EQ(explanation.inside, 2U);
  EXPECT_EQ(explanation.outside, 0U);
  EXPECT_THAT(explanation.not_differentiated, IsEmpty());
}

TEST(DifferentiationReasons, WhatNeedsNoGradientIsNotCounted) {
  const GradientExplanation explanation = explained(R"(graph(%x : Float(4, requires_grad=0, device=cpu)):
  %a : Float(4, requires_grad=0, device=cpu) = aten::tanh(%x)
  return (%a)
)");
  EXPECT_EQ(explanation.inside + explanation.outside, 0U);
}

TEST(DifferentiationReasons, AnOperatorWithoutATextOrWithEffects) {
  EXPECT_EQ(reasons_of(R"(graph(%x : Float(4, 4, device=cpu)):
  %true : bool = prim::Constant[value=1]()
  %a : Float(4, 4, device=cpu) = aten::tanh(%x)
  %inverse : Float(4, 4, device=cpu) = aten::matrix_exp(%a)
  %c : Float(4, 4, device=cpu) = aten::relu_(%inverse)
  return (%c)
)"),
            (Reasons{{"aten::matrix_exp", NotDifferentiated::kNoText}, {"aten::relu_", NotDifferentiated::kEffects}}));
}

TEST(DifferentiationReasons, OperandsThatTheTextsDoNotServe) {
  EXPECT_EQ(reasons_of(R"(graph(%x : Float(4, 4, device=cpu), %u : Tensor, %c : ComplexFloat(4, 4, device=cpu), %o : Tensor?,
                               %list : Tensor[]):
  %zero : int = prim::Constant[value=0]()
  %unknown : Tensor = aten::tanh(%u)
  %complex : ComplexFloat(4, 4, device=cpu) = aten::exp(%c)
  %hidden : Float(4, 4, device=cpu) = aten::linear(%x, %x, %o)
  %joined : Float(4, 4, device=cpu) = aten::cat(%list, %zero)
  return (%unknown, %complex, %hidden, %joined)
)"),
            (Reasons{{"aten::tanh", NotDifferentiated::kUnknownDtype},
                     {"aten::exp", NotDifferentiated::kComplex},
                     {"aten::linear", NotDifferentiated::kHiddenTensor},
                     {"aten::cat", NotDifferentiated::kList}}));
}

TEST(DifferentiationReasons, ANoneConstantHidesNoTensor) {
  EXPECT_EQ(explained(R"(graph(%x : Float(4, 4, device=cpu)):
  %none : Tensor? = prim::Constant()
  %a : Float(4, 4, device=cpu) = aten::linear(%x, %x, %none)
  return (%a)
)")
                .inside,
            1U);
}

TEST(DifferentiationReasons, AConditionThatDoesNotHold) {
  EXPECT_EQ(reasons_of(R"(graph(%x : Float(4, 4, device=cpu), %y : Float(4, 4, requires_grad=0, device=cpu)):
  %true : bool = prim::Constant[value=1]()
  %one : int = prim::Constant[value=1]()
  %a : Float(device=cpu) = aten::kl_div(%x, %y, %one, %true)
  return (%a)
)"),
            (Reasons{{"aten::kl_div", NotDifferentiated::kCondition}}));
}

TEST(DifferentiationReasons, SubgraphsThatAreTooSmall) {
  const char* const kVisible = R"(graph(%x : Float(4, device=cpu)):
  %a : Float(4, device=cpu) = aten::tanh(%x)
  %b : Float(4, device=cpu) = aten::exp(%a)
  return (%a, %b)
)";
  EXPECT_EQ(reasons_of(kVisible, 2),
            (Reasons{{"aten::tanh", NotDifferentiated::kVisible}, {"aten::exp", NotDifferentiated::kTooFew}}));
  EXPECT_THAT(reasons_of(kVisible, 1), IsEmpty());
  EXPECT_EQ(reasons_of(R"(graph(%x : Float(4, 4, device=cpu)):
  %a : Float(4, 4, device=cpu) = aten::t(%x)
  return (%a)
)"),
            (Reasons{{"aten::t", NotDifferentiated::kOnlyViews}}));
}

TEST(DifferentiationReasons, ACallThatIsNotInlined) {
  torch::jit::CompilationUnit unit;  // owns the function that the graph calls
  unit.define(std::nullopt, R"(
def g(x):
    return torch.tanh(x)
def f(x):
    return torch.exp(g(x * 2))
)",
              torch::jit::nativeResolver(), nullptr);
  const auto graph = convert(*torch::jit::toGraphFunction(unit.get_function("f")).graph()).value_or_throw("f");
  GradientExplanation explanation;
  EXPECT_FALSE(differentiate(*graph, 1, &explanation));
  Reasons reasons;
  for (const NotDifferentiatedExplanation& entry : explanation.not_differentiated) {
    reasons[entry.op] = entry.reason;
  }
  EXPECT_EQ(reasons, (Reasons{{"aten::mul", NotDifferentiated::kUnknownDtype},
                              {"prim::CallFunction", NotDifferentiated::kCall},
                              {"aten::exp", NotDifferentiated::kUnknownDtype}}));
}

// The plans of a subgraph are explained as those of calls are.
TEST(DifferentiationReasons, SubgraphsAreExplained) {
  GraphExecutor executor(testing::graph_of_source(R"(
def f(x, w):
    h = torch.tanh(x @ w)
    return torch.sigmoid(h * x).sum()
)"),
                         "f", Options().compile(CompileMode::kBlocking));
  std::vector<c10::IValue> stack = {at::rand({3, 3}).requires_grad_(true), at::rand({3, 3})};
  executor.run(stack);
  const PlanExplanation plan = executor.explain().plans.at(1);
  EXPECT_THAT(plan.not_prepared, IsEmpty()) << "a differentiable subgraph has prepared steps of its own";
  ASSERT_TRUE(plan.gradients.has_value());
  ASSERT_THAT(plan.gradients->subgraphs, SizeIs(1));
  const DifferentiableExplanation& subgraph = plan.gradients->subgraphs[0];
  EXPECT_THAT(subgraph.name, ::testing::StartsWith("SconceBackward"));
  EXPECT_GT(subgraph.saved_inputs + subgraph.saved_outputs + subgraph.saved_intermediates, 0U);
  ASSERT_THAT(subgraph.plans, SizeIs(2));
  EXPECT_THAT(subgraph.plans[0].text, ::testing::HasSubstr("tanh"));
  EXPECT_THAT(subgraph.plans[1].text, ::testing::HasSubstr("tanh_backward"));
}

}  // namespace
}  // namespace sconce
