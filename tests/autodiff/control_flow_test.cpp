// Branches and loops inside differentiable subgraphs: gradients of every order, with LibTorch's interpreter as the oracle.
#include "tests/support/graphs.h"

#include <sconce/graph_executor.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <functional>

namespace sconce {
namespace {

using testing::agree;
using ::testing::HasSubstr;
using testing::message_of;

constexpr double kTolerance = 1e-10;

struct Program {
  const char* name;
  const char* source;  // f(x: 5 x 2 x 3, w: 3 x 3, b: 3, n: int, flag: bool)
};

void PrintTo(const Program& program, std::ostream* out) { *out << program.name; }

const Program kPrograms[] = {
    {"stacks_what_a_loop_appends", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    h = x.new_zeros([2, 3])
    steps: List[Tensor] = []
    for t in range(n + 1):
        h = torch.tanh(x[t] @ w + h + b)
        steps.append(h)
    return torch.stack(steps, 1) * 2
)"},
    {"concatenates_parts_of_several_sizes", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    steps: List[Tensor] = []
    for t in range(n + 1):
        y = torch.sigmoid(x[t] @ w)
        steps += [torch.cat([y, y[:1]]) if t == 1 else y]
    return torch.tanh(torch.cat(steps)) + b
)"},
    {"iterates_over_an_unbound_tensor", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    h = x.new_zeros([2, 3])
    c = x.new_ones([2, 3])
    for part in torch.tanh(x).unbind(0):
        gates = part @ w + h * b
        c = torch.sigmoid(gates) * c + torch.tanh(gates)
        h = torch.tanh(c) * torch.sigmoid(gates)
    return (h * c).exp()
)"},
    {"returns_what_it_was_given_without_iterations", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    h = x.new_ones([2, 3])
    for t in range(n):
        h = torch.tanh(h @ w + x[t])
    return h.sin()
)"},
    {"returns_an_operand_without_iterations", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    h = x
    for t in range(n):
        h = torch.tanh(h @ w) * b
    return h
)"},
    {"counts_iterations_that_a_condition_ends", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    h = torch.sin(x)
    k = 0
    while k < n:
        h = torch.tanh(h @ w) * (k + 1)
        k += 2
    return h * k + b
)"},
    {"takes_one_branch", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    h = torch.sin(x)
    if flag:
        h = torch.tanh(h @ w).exp()
    else:
        h = torch.sigmoid(h * b)
    return h * h
)"},
    {"takes_branches_in_a_loop", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    h = torch.sin(x[0])
    for t in range(n + 1):
        if t % 2 == 0:
            h = torch.tanh(h @ w) * x[t]
        else:
            h = torch.sigmoid(h) + b
    return h.cos()
)"},
    {"nests_loops", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    h = torch.sin(x[0])
    for k in range(n + 1):
        steps: List[Tensor] = []
        for t in range(k + 1):
            h = torch.tanh(h @ w + x[t])
            steps.append(h * b)
        h = torch.stack(steps).sum(0) + h
    return h
)"},
    {"carries_a_tensor_that_grows", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    h = torch.sin(x[0])
    for t in range(n):
        h = torch.cat([torch.tanh(h @ w), x[t]])
    return h.mul(h)
)"},
    {"returns_parts_of_what_it_computes", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    h = torch.sin(x[0])
    c = torch.cos(x[1])
    for t in range(n):
        both = torch.tanh(torch.cat([h @ w, c * b]))
        h, c = both.chunk(2)
    return h * 2 + c
)"},
    {"returns_a_list", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> List[Tensor]:
    steps: List[Tensor] = []
    for t in range(n + 1):
        steps.append(torch.tanh(x[t] @ w).exp())
    return steps
)"},
    {"leaves_a_result_unused", R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> Tensor:
    h = torch.sin(x[0])
    other = torch.cos(x[1])
    for t in range(n):
        other = torch.tanh(other * b)
        h = torch.tanh(h @ w)
    return h + 1
)"},
};

struct Outcome {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
};

using Call = std::function<c10::IValue(std::vector<c10::IValue>)>;

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  return value.isTensor() ? std::vector<at::Tensor>{value.toTensor()} : value.toTensorVector();
}

std::vector<at::Tensor> gradients(const at::Tensor& of, const std::vector<at::Tensor>& inputs, bool create_graph) {
  return torch::autograd::grad({of}, inputs, {}, /*retain_graph=*/std::nullopt, create_graph, /*allow_unused=*/true);
}

at::Tensor sum_of_squares(const std::vector<at::Tensor>& tensors) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const at::Tensor& tensor : tensors) {
    sum = tensor.defined() ? sum + (tensor * tensor).sum() : sum;
  }
  return sum;
}

// Calls, and goes backward twice. `needs`: which of x, w and b require a gradient.
Outcome outcome_of(const Call& call, int64_t n, bool flag, const std::vector<bool>& needs) {
  at::manual_seed(3);
  const std::vector<at::Tensor> inputs = {at::rand({5, 2, 3}, at::kDouble).requires_grad_(needs[0]),
                                          at::rand({3, 3}, at::kDouble).requires_grad_(needs[1]),
                                          at::rand({3}, at::kDouble).requires_grad_(needs[2])};
  std::vector<at::Tensor> asked;
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(asked),
               [](const at::Tensor& input) { return input.requires_grad(); });
  Outcome outcome;
  outcome.outputs = tensors_of(call({inputs[0], inputs[1], inputs[2], n, flag}));
  const at::Tensor loss = sum_of_squares(outcome.outputs);
  if (loss.requires_grad()) {
    outcome.first = gradients(loss, asked, /*create_graph=*/true);
    const at::Tensor next = sum_of_squares(outcome.first);
    outcome.second = next.requires_grad() ? gradients(next, asked, /*create_graph=*/false) : std::vector<at::Tensor>();
  }
  return outcome;
}

void expect_same(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs, const char* what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].defined(), theirs[i].defined()) << what << ' ' << i;
    if (ours[i].defined()) {
      EXPECT_EQ(ours[i].requires_grad(), theirs[i].requires_grad()) << what << ' ' << i;
      EXPECT_TRUE(agree(ours[i].detach(), theirs[i].detach(), kTolerance)) << what << ' ' << i;
    }
  }
}

class ControlFlow : public ::testing::TestWithParam<Program> {
 protected:
  ControlFlow() {
    unit_.define(std::nullopt, GetParam().source, torch::jit::nativeResolver(), nullptr);
    ours_ = [this](std::vector<c10::IValue> arguments) {
      executor_.run(arguments);
      return arguments.at(0);
    };
    theirs_ = [this](std::vector<c10::IValue> arguments) {
      const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
      return unit_.get_function("f")(std::move(arguments));
    };
  }

  GraphExecutor executor_{testing::graph_of_source(GetParam().source), "f",
                          Options().compile(CompileMode::kBlocking).min_differentiable_nodes(1)};
  torch::jit::CompilationUnit unit_;
  Call ours_;
  Call theirs_;
};

TEST_P(ControlFlow, GradientsOfBothOrdersAreLibTorchs) {
  for (const std::vector<bool>& needs : {std::vector<bool>{true, true, true}, {false, true, false}, {true, false, true}}) {
    for (const int64_t n : {0, 1, 3}) {
      for (const bool flag : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "n = " << n << ", flag = " << flag << ", needs " << needs[0] << needs[1]
                                          << needs[2]);
        const Outcome ours = outcome_of(ours_, n, flag, needs);
        const Outcome theirs = outcome_of(theirs_, n, flag, needs);
        expect_same(ours.outputs, theirs.outputs, "output");
        expect_same(ours.first, theirs.first, "gradient");
        expect_same(ours.second, theirs.second, "gradient of gradients");
      }
    }
  }
}

TEST_P(ControlFlow, IsPartOfASubgraph) {
  outcome_of(ours_, 3, true, {true, true, true});
  size_t inside = 0;
  for (const PlanExplanation& plan : executor_.explain().plans) {
    if (plan.gradients) {
      for (const NotDifferentiatedExplanation& entry : plan.gradients->not_differentiated) {
        ADD_FAILURE() << entry.node << " is outside: " << to_string(entry.reason);
      }
      EXPECT_EQ(plan.gradients->subgraphs.size(), 1U);
      inside += plan.gradients->inside;
    }
  }
  EXPECT_GT(inside, 0U);
}

INSTANTIATE_TEST_SUITE_P(Programs, ControlFlow, ::testing::ValuesIn(kPrograms),
                         [](const ::testing::TestParamInfo<Program>& program) { return std::string(program.param.name); });

// ---- results that the caller sees

const char* const kStates = R"(
def f(x: Tensor, w: Tensor, b: Tensor, n: int, flag: bool) -> List[Tensor]:
    h = x.new_zeros([2, 3])
    c = x.new_ones([2, 3])
    steps: List[Tensor] = []
    for t in range(n):
        gates = x[t] @ w + h * b
        c = torch.sigmoid(gates) * c + torch.tanh(gates)
        h = torch.tanh(c) * torch.sigmoid(gates)
        steps.append(h)
    steps.append(h.exp())
    return [torch.stack(steps), h, c]
)";

class States : public ::testing::Test {
 protected:
  States() { unit.define(std::nullopt, kStates, torch::jit::nativeResolver(), nullptr); }

  GraphExecutor executor{testing::graph_of_source(kStates), "f",
                         Options().compile(CompileMode::kBlocking).min_differentiable_nodes(1)};
  torch::jit::CompilationUnit unit;
  Call ours = [this](std::vector<c10::IValue> arguments) {
    executor.run(arguments);
    return arguments.at(0);
  };
  Call theirs = [this](std::vector<c10::IValue> arguments) {
    const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
    return unit.get_function("f")(std::move(arguments));
  };
};

TEST_F(States, GradientsOfBothOrdersAreLibTorchs) {
  for (const int64_t n : {0, 1, 2, 4}) {
    const Outcome mine = outcome_of(ours, n, true, {true, true, true});
    const Outcome other = outcome_of(theirs, n, true, {true, true, true});
    expect_same(mine.outputs, other.outputs, "output");
    expect_same(mine.first, other.first, "gradient");
    expect_same(mine.second, other.second, "gradient of gradients");
  }
}

// The state of the last step is both a result and what other results are computed of.
TEST_F(States, HaveTheirWholeGradients) {
  std::vector<std::vector<at::Tensor>> found;
  for (const Call& call : {ours, theirs}) {
    at::manual_seed(3);
    const at::Tensor x = at::rand({5, 2, 3}, at::kDouble);
    const at::Tensor w = at::rand({3, 3}, at::kDouble).requires_grad_(true);
    const auto results = tensors_of(call({x, w, at::rand({3}, at::kDouble), 3, true}));
    found.push_back(gradients((results[0] * results[0]).sum(), {results[1], results[2], w}, /*create_graph=*/false));
  }
  expect_same(found[0], found[1], "gradient");
}

TEST_F(States, TheIterationsBeforeTheLastAreOneSubgraph) {
  outcome_of(ours, 3, true, {true, true, true});
  bool has_loop = false;
  for (const PlanExplanation& plan : executor.explain().plans) {
    for (size_t i = 0; plan.gradients && i < plan.gradients->subgraphs.size(); ++i) {
      has_loop = has_loop || plan.gradients->subgraphs[i].plans.at(0).text.find("loop") != std::string::npos;
    }
  }
  EXPECT_TRUE(has_loop);
}

// ---- what autograd promises

const char* const kSteps = R"(
def f(x: Tensor, w: Tensor) -> List[Tensor]:
    steps: List[Tensor] = []
    for t in range(x.size(0)):
        steps.append(torch.tanh(x[t] @ w).exp())
    return steps
)";

class Steps : public ::testing::Test {
 protected:
  std::vector<at::Tensor> call() {
    std::vector<c10::IValue> stack = {x, w};
    executor.run(stack);
    return stack.at(0).toTensorVector();
  }

  GraphExecutor executor{testing::graph_of_source(kSteps), "f",
                         Options().compile(CompileMode::kBlocking).min_differentiable_nodes(1)};
  at::Tensor x = at::rand({4, 2, 3}, at::kDouble).requires_grad_(true);
  at::Tensor w = at::rand({3, 3}, at::kDouble).requires_grad_(true);
};

TEST_F(Steps, AWriteToAnElementThatBackwardReadsIsAnErrorAsInEagerMode) {
  const auto steps = call();
  steps[2].add_(1);
  EXPECT_THAT(message_of([&] { steps[0].sum().backward(); }), HasSubstr("has been modified by an inplace operation"));
}

TEST_F(Steps, ElementsHaveGradientsOfTheirOwn) {
  const auto steps = call();
  at::Tensor seen;
  steps[1].register_hook([&](const at::Tensor& gradient) { seen = gradient; });
  (steps[1] * 3).sum().backward();
  EXPECT_TRUE(agree(seen, at::full({2, 3}, 3, at::kDouble), 0));
  const at::Tensor of_x = x.grad();
  EXPECT_TRUE(agree(of_x[0], at::zeros({2, 3}, at::kDouble), 0));
  EXPECT_GT(of_x[1].abs().sum().item<double>(), 0);
}

TEST_F(Steps, ASecondBackwardNeedsRetainGraph) {
  const auto steps = call();
  const at::Tensor loss = steps[0].sum() + steps[3].sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = w.grad().clone();
  loss.backward();
  EXPECT_TRUE(agree(w.grad(), 2 * once, 1e-12));
  EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("backward through the graph a second time"));
}

TEST_F(Steps, NothingKeepsTheNodeAliveAfterTheElements) {
  std::weak_ptr<torch::autograd::Node> node;
  {
    const auto steps = call();
    node = steps[0].grad_fn();
    EXPECT_FALSE(node.expired());
  }
  EXPECT_TRUE(node.expired());
}

}  // namespace
}  // namespace sconce
