// Differentiable subgraphs with operators whose gradients are recorded from LibTorch's autograd.
#include "tests/support/graphs.h"

#include "autodiff/differentiate.h"

#include <sconce/graph_executor.h>
#include <sconce/module.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <optional>
#include <thread>

namespace sconce {
namespace {

using testing::agree;
using Tensors = std::vector<at::Tensor>;

struct Example {
  const char* name;
  const char* source;
  std::function<at::Tensor(const Tensors&)> eager;
};

const std::vector<Example>& examples() {
  static const std::vector<Example> all = {
      {"functions", "def f(x, w):\n    return torch.special_i1(torch.tanh(x @ w)) * torch.special_i0e(x)\n",
       [](const Tensors& in) { return at::special_i1(at::tanh(at::matmul(in[0], in[1]))) * at::special_i0e(in[0]); }},
      {"an inverse", "def f(x, w):\n    return torch.sigmoid(torch.linalg_inv(x @ x.t() + torch.exp(w)) * 2)\n",
       [](const Tensors& in) { return at::sigmoid(at::linalg_inv(at::matmul(in[0], in[0].t()) + at::exp(in[1])) * 2); }},
      {"operands that are broadcast",
       "def f(x, w):\n    return torch.copysign(torch.exp(x), torch.sin(w[:1])) * torch.logaddexp2(x, w[0])\n",
       [](const Tensors& in) {
         return at::copysign(at::exp(in[0]), at::sin(in[1].slice(0, 0, 1))) * at::logaddexp2(in[0], in[1][0]);
       }},
      {"a gradient of equal elements, and strided operands",
       "def f(x, w):\n    return torch.sinc(x.t()).sum() + torch.dist(torch.exp(x), torch.sin(w.t()))\n",
       [](const Tensors& in) { return at::sinc(in[0].t()).sum() + at::dist(at::exp(in[0]), at::sin(in[1].t())); }},
      {"a synonym", "def f(x, w):\n    return torch.exp(torch.inverse(x @ x.t() + torch.exp(w)))\n",
       [](const Tensors& in) { return at::exp(at::inverse(at::matmul(in[0], in[0].t()) + at::exp(in[1]))); }},
      {"a loop and a branch",
       "def f(x, w):\n    h = x\n    for i in range(3):\n        if i > 0:\n            h = torch.special_i1(h * w)\n"
       "        else:\n            h = torch.sinc(h) + w\n    return h * 2\n",
       [](const Tensors& in) {
         at::Tensor h = in[0];
         for (int i = 0; i < 3; ++i) {
           h = i > 0 ? at::special_i1(h * in[1]) : at::sinc(h) + in[1];
         }
         return h * 2;
       }},
  };
  return all;
}

Options compiling_at_once() { return Options().compile(CompileMode::kBlocking).min_differentiable_nodes(1); }

Tensors matrices(int64_t n, at::ScalarType dtype = at::kDouble) {
  at::manual_seed(static_cast<uint64_t>(n));
  return {at::rand({n, n}, dtype).requires_grad_(true), at::rand({n, n}, dtype).requires_grad_(true)};
}

at::Tensor result_of(GraphExecutor& executor, const Tensors& in) {
  std::vector<c10::IValue> stack(in.begin(), in.end());
  executor.run(stack);
  return stack[0].toTensor();
}

Tensors first(const at::Tensor& result, const Tensors& in, bool create_graph = false) {
  return torch::autograd::grad({result.sin().sum()}, in, {}, /*retain_graph=*/true, create_graph, /*allow_unused=*/true);
}

// Nothing where LibTorch has no second derivative.
std::optional<Tensors> second(const at::Tensor& result, const Tensors& in) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const at::Tensor& gradient : first(result, in, /*create_graph=*/true)) {
    sum = gradient.defined() ? sum + (gradient * gradient).sum() : sum;
  }
  try {
    return torch::autograd::grad({sum}, in, {}, /*retain_graph=*/true, /*create_graph=*/false, /*allow_unused=*/true);
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("is not implemented"));
    return std::nullopt;
  }
}

void expect_equal(const Tensors& found, const Tensors& expected, const std::string& what, double tolerance = 1e-9) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(found[i].defined(), expected[i].defined()) << what << " " << i;
    if (expected[i].defined()) {
      EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type());
      EXPECT_TRUE(at::allclose(found[i], expected[i], tolerance, tolerance / 100, /*equal_nan=*/true)) << what << " " << i;
    }
  }
}

TEST(RecordedRules, GiveTheGradientsOfEagerMode) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.name);
    GraphExecutor executor(testing::graph_of_source(example.source), "f", compiling_at_once());
    for (const int64_t n : {3, 3, 5, 4, 1, 3}) {
      const Tensors in = matrices(n);
      const at::Tensor found = result_of(executor, in);
      const at::Tensor expected = example.eager(in);
      EXPECT_TRUE(agree(found, expected, 1e-10));
      expect_equal(first(found, in), first(expected, in), "gradient");
      const std::optional<Tensors> ours = second(found, in);
      const std::optional<Tensors> theirs = second(expected, in);
      ASSERT_EQ(ours.has_value(), theirs.has_value());
      if (theirs) {
        expect_equal(*ours, *theirs, "second gradient");
      }
      expect_equal(first(found, {in[1]}), first(expected, {in[1]}), "gradient of a part");
    }
    const std::vector<NotDifferentiatedExplanation> none;
    size_t recorded = 0;
    for (const PlanExplanation& plan : executor.explain().plans) {
      recorded += plan.gradients ? plan.gradients->recorded.size() : 0;
      for (const NotDifferentiatedExplanation& each : plan.gradients ? plan.gradients->not_differentiated : none) {
        EXPECT_EQ(each.reason, NotDifferentiated::kVisible) << each.node << ": " << to_string(each.reason);
      }
    }
    EXPECT_GT(recorded, 0U);
  }
}

TEST(RecordedRules, ServeFloatsAndMixedDtypes) {
  GraphExecutor executor(
      testing::graph_of_source("def f(x, w):\n    return torch.logaddexp2(torch.exp(x), w) * torch.sinc(x)\n"), "f",
      compiling_at_once());
  for (const auto& [a, b] : {std::pair(at::kFloat, at::kFloat), {at::kFloat, at::kDouble}, {at::kDouble, at::kFloat}}) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Tensors in = {matrices(4, a)[0], matrices(4, b)[1]};
      const at::Tensor expected = at::logaddexp2(at::exp(in[0]), in[1]) * at::sinc(in[0]);
      const at::Tensor found = result_of(executor, in);
      EXPECT_EQ(found.scalar_type(), expected.scalar_type());
      expect_equal(first(found, in), first(expected, in), "gradient", 1e-5);
    }
  }
  const Tensors in = {matrices(4)[0], at::ones({4}, at::kLong)};
  for (int repeat = 0; repeat < 3; ++repeat) {
    const at::Tensor expected = at::logaddexp2(at::exp(in[0]), in[1]) * at::sinc(in[0]);
    expect_equal(first(result_of(executor, in), {in[0]}), first(expected, {in[0]}), "gradient beside integers");
  }
}

TEST(RecordedRules, OfSeveralCompilesAtOnceAreTheSame) {
  std::vector<std::thread> threads;
  std::vector<Tensors> found(8);
  const Tensors in = matrices(5);
  for (Tensors& each : found) {
    threads.emplace_back([&] {
      const Tensors mine = {in[0].detach().requires_grad_(true), in[1].detach().requires_grad_(true)};
      GraphExecutor executor(
          testing::graph_of_source("def f(x, w):\n    return torch.special_log_ndtr(x @ w) * torch.sinc(w)\n"), "f",
          compiling_at_once());
      result_of(executor, mine);
      each = first(result_of(executor, mine), mine);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const Tensors expected = first(at::special_log_ndtr(at::matmul(in[0], in[1])) * at::sinc(in[1]), in);
  for (const Tensors& each : found) {
    expect_equal(each, expected, "gradient");
  }
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

GradientExplanation explanation_of(const std::string& text) {
  const std::unique_ptr<Graph> graph = testing::graph_of(text);
  GradientExplanation explanation;
  differentiate(*graph, 1, &explanation);
  for_each_node(graph->body(), [](const Node* node) {
    EXPECT_EQ(node->attribute(attr::kRecordedGradient), nullptr) << "differentiate has left its mark";
  });
  return explanation;
}

TEST(RecordedRules, PutOperatorsWithoutATextInside) {
  const GradientExplanation explanation = explanation_of(R"(graph(%x : Double(*, *, device=cpu)):
  %a : Double(*, *, device=cpu) = aten::tanh(%x)
  %b : Double(*, *, device=cpu) = aten::special_i1(%a)
  %c : Double(*, *, device=cpu) = aten::special_i1(%b)
  return (%c)
)");
  EXPECT_EQ(explanation.inside, 3U);
  EXPECT_THAT(explanation.not_differentiated, ::testing::IsEmpty());
  ASSERT_EQ(explanation.recorded.size(), 1U);
  EXPECT_EQ(explanation.recorded[0].op, "aten::special_i1");
  EXPECT_EQ(explanation.recorded[0].nodes, 2U);
  EXPECT_THAT(explanation.recorded[0].node, ::testing::HasSubstr("aten::special_i1(%a)"));
}

TEST(RecordedRules, AreNotOfCallsThatCannotBeRecorded) {
  const GradientExplanation explanation = explanation_of(R"(graph(%x : Double(*, *, device=cpu), %n : int, %y : Tensor):
  %a : Double(*, *, device=cpu) = aten::tanh(%x)
  %b : Double(*, *, device=cpu) = aten::polygamma(%n, %a)
  %c : Tensor = aten::special_i1(%y)
  return (%b, %c)
)");
  ASSERT_EQ(explanation.not_differentiated.size(), 2U);
  EXPECT_EQ(explanation.not_differentiated[0].op, "aten::polygamma");
  EXPECT_EQ(explanation.not_differentiated[0].reason, NotDifferentiated::kNotRecorded) << "the order is not known";
  EXPECT_EQ(explanation.not_differentiated[1].op, "aten::special_i1");
  EXPECT_EQ(explanation.not_differentiated[1].reason, NotDifferentiated::kUnknownDtype);
  EXPECT_THAT(explanation.recorded, ::testing::IsEmpty());
}

// LibTorch's formulas of some operators crash on operands that autograd never hands them.
TEST(RecordedRules, AreNotOfOperatorsThatNoRowMarks) {
  const GradientExplanation explanation = explanation_of(R"(graph(%x : Double(*, *, device=cpu)):
  %a : Double(*, *, device=cpu) = aten::tanh(%x)
  %b : Double(*, *, device=cpu) = aten::special_sinc(%a)
  return (%b)
)");
  ASSERT_EQ(explanation.not_differentiated.size(), 1U);
  EXPECT_EQ(explanation.not_differentiated[0].reason, NotDifferentiated::kNoText);
}

}  // namespace
}  // namespace sconce
