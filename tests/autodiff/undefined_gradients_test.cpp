// Runs of backward in which some outputs bring no gradient: metrics beside a loss, outputs that the caller leaves out. Eager
// mode does not visit what such outputs alone are computed from. Zeros in their place would become NaN where a derivative is
// infinite: each program has one. LibTorch's interpreter is the oracle.
#include "tests/support/graphs.h"

#include <sconce/graph_executor.h>
#include <sconce/module.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <functional>

namespace sconce {
namespace {

struct MetricProgram {
  const char* name;
  const char* source;  // f(x: 3 x 4, w: 4, n: int) -> List[Tensor]
};

void PrintTo(const MetricProgram& program, std::ostream* out) { *out << program.name; }

const MetricProgram kMetricPrograms[] = {
    {"a_metric_beside_a_loss", R"(
def f(x: Tensor, w: Tensor, n: int) -> List[Tensor]:
    p = torch.softmax(x * w, 1)
    gap = torch.sqrt(p - p)
    return [(p * x).sum(), gap.detach().sum(), gap.mean()]
)"},
    {"outputs_that_meet_inside", R"(
def f(x: Tensor, w: Tensor, n: int) -> List[Tensor]:
    h = torch.tanh(x * w)
    a = torch.exp(h)
    b = torch.sqrt(h - h)
    c = torch.log(h * h)
    return [a * 2, b * 3, a + c]
)"},
    {"parts_of_one_tensor", R"(
def f(x: Tensor, w: Tensor, n: int) -> List[Tensor]:
    h = torch.tanh(x * w)
    a, b = torch.chunk(h, 2, 1)
    return [torch.sin(a), torch.sqrt(b - b), (a * b).sum()]
)"},
    {"a_metric_that_a_loop_carries", R"(
def f(x: Tensor, w: Tensor, n: int) -> List[Tensor]:
    h = x * w
    d = h * 1.0
    total = torch.zeros_like(h)
    for i in range(n):
        h = torch.tanh(h * w)
        total = total + torch.sqrt(h - h)
        d = torch.sqrt(h - h)
    return [h * 2.0, d * 1.0, total * 1.0]
)"},
    {"elements_of_a_list", R"(
def f(x: Tensor, w: Tensor, n: int) -> List[Tensor]:
    h = x * w
    steps: List[Tensor] = []
    for i in range(n):
        h = torch.tanh(h * w)
        steps.append(h * 2.0)
        steps.append(torch.sqrt(h - h))
    return steps
)"},
    {"a_joined_list_and_a_state", R"(
def f(x: Tensor, w: Tensor, n: int) -> List[Tensor]:
    h = x * w
    c = torch.sin(h)
    steps: List[Tensor] = []
    for i in range(n):
        c = torch.sqrt(c - c) + h * h
        h = torch.tanh(h * w + c)
        steps.append(h)
    return [torch.stack(steps) if n > 0 else h * 1.0, c * 2.0]
)"},
    {"results_of_one_operator", R"(
def f(x: Tensor, w: Tensor, n: int) -> List[Tensor]:
    h = torch.tanh(x * w)
    variance, mean = torch.var_mean(h[:, :1], dim=[1], correction=1)
    return [mean * 2.0, variance * 2.0, h * 1.0]
)"},
    {"one_of_several_results", R"(
def f(x: Tensor, w: Tensor, n: int) -> List[Tensor]:
    variance, mean = torch.var_mean(torch.tanh(x * w)[:, 1:2], dim=[1], correction=1)
    return [mean * 2.0, torch.sin(w)]
)"},
    {"a_branch", R"(
def f(x: Tensor, w: Tensor, n: int) -> List[Tensor]:
    h = torch.tanh(x * w)
    if n > 1:
        a = torch.exp(h)
        b = torch.sqrt(h - h)
    else:
        a = torch.sqrt(h - h)
        b = h * w
    return [a * 2, b * 2]
)"},
};

using CallLoss = std::function<c10::IValue(std::vector<c10::IValue>)>;

struct LossOutcome {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
};

std::vector<at::Tensor> gradients_of_loss(const at::Tensor& of, const std::vector<at::Tensor>& inputs, bool create_graph) {
  return torch::autograd::grad({of}, inputs, {}, /*retain_graph=*/std::nullopt, create_graph, /*allow_unused=*/true);
}

// `chosen`: by bits, which outputs are in the loss.
LossOutcome loss_outcome_of(const CallLoss& call, int64_t n, uint64_t chosen, bool twice) {
  at::manual_seed(5);
  const std::vector<at::Tensor> inputs = {at::rand({3, 4}, at::kDouble).requires_grad_(true),
                                          at::rand({4}, at::kDouble).requires_grad_(true)};
  LossOutcome outcome;
  outcome.outputs = call({inputs[0], inputs[1], n}).toTensorVector();
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < outcome.outputs.size(); ++i) {
    loss = (chosen >> i & 1U) != 0 ? loss + (outcome.outputs[i] * outcome.outputs[i]).sum() : loss;
  }
  if (!loss.requires_grad()) {
    return outcome;
  }
  outcome.first = gradients_of_loss(loss, inputs, twice);
  at::Tensor next = at::zeros({}, at::kDouble);
  for (const at::Tensor& gradient : outcome.first) {
    next = gradient.defined() ? next + (gradient * gradient).sum() : next;
  }
  if (next.requires_grad()) {
    outcome.second = gradients_of_loss(next, inputs, false);
  }
  return outcome;
}

void expect_same_gradients(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs, const char* what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].defined(), theirs[i].defined()) << what << ' ' << i;
    if (ours[i].defined()) {
      EXPECT_TRUE(at::allclose(ours[i].detach(), theirs[i].detach(), 1e-9, 1e-9, /*equal_nan=*/true))
          << what << ' ' << i << "\nours " << ours[i] << "\nLibTorch's " << theirs[i];
    }
  }
}

class UndefinedGradients : public ::testing::TestWithParam<MetricProgram> {};

TEST_P(UndefinedGradients, AreNotComputedWith) {
  GraphExecutor executor(testing::graph_of_source(GetParam().source), "f",
                         Options().compile(CompileMode::kBlocking).min_differentiable_nodes(1));
  torch::jit::CompilationUnit unit;
  unit.define(std::nullopt, GetParam().source, torch::jit::nativeResolver(), nullptr);
  const CallLoss ours = [&](std::vector<c10::IValue> arguments) {
    executor.run(arguments);
    return arguments.at(0);
  };
  const CallLoss theirs = [&](std::vector<c10::IValue> arguments) {
    const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
    return unit.get_function("f")(std::move(arguments));
  };
  for (const int64_t n : {2, 0, 1}) {
    const size_t outputs = loss_outcome_of(theirs, n, 0, false).outputs.size();
    for (uint64_t chosen = 1; chosen < uint64_t{1} << outputs; ++chosen) {
      for (const bool twice : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "n = " << n << ", outputs " << chosen << (twice ? ", twice" : ""));
        const LossOutcome actual = loss_outcome_of(ours, n, chosen, twice);
        const LossOutcome expected = loss_outcome_of(theirs, n, chosen, twice);
        expect_same_gradients(actual.outputs, expected.outputs, "output");
        expect_same_gradients(actual.first, expected.first, "gradient");
        expect_same_gradients(actual.second, expected.second, "gradient of gradients");
      }
    }
  }
  EXPECT_TRUE(executor.explain().refusals.empty());
}

// What flows to values between the operators of a subgraph is no gradient of its result.
TEST(UndefinedGradientsOfGradients, CallNoHookOfAResult) {
  torch::jit::Module module("Product");
  module.register_parameter("w", at::randn({3, 4}).requires_grad_(), /*is_buffer=*/false);
  module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.sin(x * self.w)
    return (h * h * self.w).sum(1)
)");
  const Module ours = accelerate(module, Options().compile(CompileMode::kBlocking).min_differentiable_nodes(0));
  for (int call = 0; call < 5; ++call) {
    const at::Tensor x = at::randn({3, 4}).requires_grad_();
    const at::Tensor result = ours.forward({x}).toTensor();
    int called = 0;
    result.register_hook([&called](const at::Tensor& gradient) {
      ++called;
      EXPECT_TRUE(gradient.defined());
    });
    const at::Tensor first = torch::autograd::grad({result.sum()}, {x}, {}, true, /*create_graph=*/true).front();
    first.pow(2).sum().backward();
    EXPECT_EQ(called, 1) << "call " << call;
    EXPECT_TRUE(x.grad().defined());
  }
}

INSTANTIATE_TEST_SUITE_P(Metrics, UndefinedGradients, ::testing::ValuesIn(kMetricPrograms),
                         [](const ::testing::TestParamInfo<MetricProgram>& program) {
                           return std::string(program.param.name);
                         });

}  // namespace
}  // namespace sconce
