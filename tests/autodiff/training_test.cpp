// Differentiable subgraphs from the outside: autograd's contract, with eager LibTorch as the oracle.
#include "tests/support/graphs.h"

#include "autodiff/differentiate.h"
#include "ir/differentiable.h"

#include <sconce/graph_executor.h>
#include <sconce/module.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>

namespace sconce {
namespace {

using testing::agree;
using ::testing::HasSubstr;
using testing::message_of;

Options differentiating() { return Options().compile(CompileMode::kBlocking).min_differentiable_nodes(1); }

const char* const kSource = R"(
def f(x, w):
    h = torch.tanh(x @ w)
    return torch.sigmoid(h * x).sum()
)";

at::Tensor eager(const at::Tensor& x, const at::Tensor& w) { return at::sigmoid(at::tanh(at::matmul(x, w)) * x).sum(); }

struct Operands {
  at::Tensor x;
  at::Tensor w;
};

Operands operands() {
  at::manual_seed(1);
  return {at::rand({3, 3}, at::kDouble).requires_grad_(true), at::rand({3, 3}, at::kDouble).requires_grad_(true)};
}

class Training : public ::testing::Test {
 protected:
  c10::IValue call(std::vector<c10::IValue> arguments) {
    executor_.run(arguments);
    return arguments.at(0);
  }
  at::Tensor loss(const Operands& each) { return call({each.x, each.w}).toTensor(); }

  GraphExecutor executor_{testing::graph_of_source(kSource), "f", differentiating()};
};

std::vector<at::Tensor> grad(const at::Tensor& output, const std::vector<at::Tensor>& inputs, bool create_graph = false) {
  return torch::autograd::grad({output}, inputs, {}, /*retain_graph=*/std::nullopt, create_graph, /*allow_unused=*/true);
}

TEST_F(Training, RecordsOneNodeForTheSubgraph) {
  const Operands each = operands();
  const at::Tensor result = loss(each);
  EXPECT_THAT(result.grad_fn()->name(), HasSubstr("SconceBackward"));
  EXPECT_EQ(result.grad_fn()->num_outputs(), 2U);
}

// The forward text of instance_norm ends with a view.
TEST(TrainingOutputs, AreWrittenInPlaceAsInEagerMode) {
  const std::string source = R"(
def f(x):
    y = torch.instance_norm(x * 2, None, None, None, None, True, 0.1, 1e-5, True)
    part = y[1:]
    part[:, 0] = 1.25
    return y * y
)";
  GraphExecutor executor(testing::graph_of_source(source), "f", differentiating());
  const auto gradient = [](const at::Tensor& result, const at::Tensor& x) { return grad(result.sum(), {x})[0]; };
  const at::Tensor x = at::arange(24, at::kDouble).cos().view({2, 3, 4}).requires_grad_(true);
  std::vector<c10::IValue> stack = {x};
  executor.run(stack);
  at::Tensor y = at::instance_norm(x * 2, {}, {}, {}, {}, true, 0.1, 1e-5, true);
  y.slice(0, 1).select(1, 0).fill_(1.25);
  EXPECT_TRUE(agree(stack[0], y * y, 1e-12));
  EXPECT_TRUE(agree(gradient(stack[0].toTensor(), x), gradient(y * y, x), 1e-10));
}

TEST(TrainingOutputs, SayThatTheyRequireGradientsInsideTheGraphToo) {
  const std::string source = R"(
def f(x, n: int):
    parts = [x.reshape([-1]), torch.ones([9], dtype=7)]
    y = torch.tanh(torch.cat(parts)[:n].reshape([n]) * 2)
    return torch.sin(y) if y.requires_grad and not y.is_leaf else y
)";
  GraphExecutor executor(testing::graph_of_source(source), "f", differentiating());
  const at::Tensor x = at::arange(6, at::kDouble).cos().requires_grad_(true);
  std::vector<c10::IValue> stack = {x, 9};
  executor.run(stack);
  const at::Tensor y = at::sin(at::tanh(at::cat({x, at::ones({9}, at::kDouble)}).slice(0, 0, 9) * 2));
  EXPECT_TRUE(agree(stack[0], y, 1e-12));
}

TEST(TrainingOutputs, CastsOfWhatIsWrittenLaterAreSaved) {
  const std::string source = R"(
def f(x, w):
    a = torch.tanh(x) * 2
    y = a.to(6) * w
    a.zero_()
    return y
)";
  GraphExecutor executor(testing::graph_of_source(source), "f", differentiating());
  const at::Tensor x = at::arange(6, at::kDouble).cos().requires_grad_(true);
  const at::Tensor w = at::ones({6}, at::kFloat).requires_grad_(true);
  std::vector<c10::IValue> stack = {x, w};
  executor.run(stack);
  EXPECT_TRUE(agree(grad(stack[0].toTensor().sum(), {w})[0], (at::tanh(x) * 2).to(at::kFloat).detach(), 1e-6));
}

TEST_F(Training, GradientsAreEagers) {
  const Operands each = operands();
  EXPECT_TRUE(agree(loss(each), eager(each.x, each.w), 1e-12));
  const auto ours = grad(loss(each), {each.x, each.w});
  const auto theirs = grad(eager(each.x, each.w), {each.x, each.w});
  EXPECT_TRUE(agree(ours[0], theirs[0], 1e-12));
  EXPECT_TRUE(agree(ours[1], theirs[1], 1e-12));
}

TEST_F(Training, GradientsOfASubsetOfTheInputs) {
  const Operands each = operands();
  EXPECT_TRUE(agree(grad(loss(each), {each.w})[0], grad(eager(each.x, each.w), {each.w})[0], 1e-12));
  const Operands constant_w{each.x, each.w.detach()};
  const at::Tensor result = loss(constant_w);
  result.backward();
  EXPECT_TRUE(agree(each.x.grad(), grad(eager(each.x, each.w), {each.x})[0], 1e-12));
  EXPECT_FALSE(each.w.grad().defined());
}

TEST_F(Training, BackwardOfBackwardIsEagers) {
  const Operands each = operands();
  const auto second = [&](const at::Tensor& result) {
    const auto first = grad(result, {each.x, each.w}, /*create_graph=*/true);
    return grad((first[0] * first[0]).sum() + first[1].exp().sum(), {each.x, each.w});
  };
  const auto ours = second(loss(each));
  const auto theirs = second(eager(each.x, each.w));
  EXPECT_TRUE(agree(ours[0], theirs[0], 1e-10));
  EXPECT_TRUE(agree(ours[1], theirs[1], 1e-10));
}

TEST_F(Training, ThirdOrderIsEagers) {
  const Operands each = operands();
  const auto third = [&](const at::Tensor& result) {
    const auto first = grad(result, {each.x}, /*create_graph=*/true);
    const auto second = grad(first[0].pow(2).sum(), {each.x}, /*create_graph=*/true);
    return grad(second[0].sum(), {each.x, each.w});
  };
  const auto ours = third(loss(each));
  const auto theirs = third(eager(each.x, each.w));
  EXPECT_TRUE(agree(ours[0], theirs[0], 1e-9));
  EXPECT_TRUE(agree(ours[1], theirs[1], 1e-9));
}

TEST_F(Training, ASecondBackwardNeedsRetainGraph) {
  const Operands each = operands();
  const at::Tensor kept = loss(each);
  kept.backward({}, /*retain_graph=*/true);
  kept.backward();
  EXPECT_TRUE(agree(each.x.grad(), 2 * grad(eager(each.x, each.w), {each.x})[0], 1e-12));
  EXPECT_THAT(message_of([&] { kept.backward(); }), HasSubstr("backward through the graph a second time"));
}

TEST_F(Training, AWriteToASavedOperandIsAnErrorAsInEagerMode) {
  const Operands each = operands();
  const at::Tensor x = each.x * 1;  // no leaf
  const at::Tensor result = call({x, each.w}).toTensor();
  x.add_(1);
  EXPECT_THAT(message_of([&] { result.backward(); }), HasSubstr("has been modified by an inplace operation"));
}

TEST_F(Training, HooksOnInputsSeeTheGradient) {
  const Operands each = operands();
  at::Tensor seen;
  each.w.register_hook([&](const at::Tensor& gradient) { seen = gradient; });
  loss(each).backward();
  EXPECT_TRUE(agree(seen, each.w.grad(), 0));
}

TEST_F(Training, NothingIsRecordedWhereNothingRequiresAGradient) {
  const Operands each = operands();
  const at::Tensor result = call({each.x.detach(), each.w.detach()}).toTensor();
  EXPECT_FALSE(result.requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(loss(each).requires_grad());
}

// In a process of its own: once some test has had a CompiledBackward, LibTorch may refuse backward on two threads at once.
TEST_F(Training, SeveralThreadsMayGoBackwardAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run_threads = [this] {
    std::vector<std::thread> threads;
    std::vector<char> agrees(4);
    loss(operands());  // at::manual_seed is not for several threads
    const Operands shared = operands();
    for (size_t i = 0; i < agrees.size(); ++i) {
      threads.emplace_back([&, i] {
        const Operands own{shared.x.detach().clone().requires_grad_(true), shared.w};
        bool all = true;
        for (int round = 0; round < 50; ++round) {
          const auto ours = grad(loss(own), {own.x, own.w});
          const auto theirs = grad(eager(own.x, own.w), {own.x, own.w});
          all = all && agree(ours[0], theirs[0], 1e-12) && agree(ours[1], theirs[1], 1e-12);
        }
        agrees[i] = all;
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return std::all_of(agrees.begin(), agrees.end(), [](bool each) { return each; });
  };
  EXPECT_EXIT(std::_Exit(run_threads() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(TrainingOfModules, BackwardOutlivesTheModule) {
  const auto script = testing::module_of(R"(
    def forward(self, x):
        return torch.tanh(x * self.scale).exp().sum()
  )",
                                         {{"scale", at::full({2}, 3.0)}});
  const at::Tensor x = at::ones({2}).requires_grad_(true);
  at::Tensor result;
  {
    const Module module = accelerate(script, differentiating());
    result = module.forward({x}).toTensor();
  }
  result.backward();
  const at::Tensor expected = grad(at::tanh(x * 3.0).exp().sum(), {x})[0];
  EXPECT_TRUE(agree(x.grad(), expected, 1e-6));
}

TEST(TrainingOutputs, AnOutputThatBackwardDoesNotReachHasAnUndefinedGradient) {
  GraphExecutor executor(testing::graph_of_source(R"(
def f(x, y):
    a = torch.tanh(x) * 2
    b = torch.tanh(y) * a.detach()
    return a, b
)"),
                         "f", differentiating());
  const at::Tensor x = at::rand({3}).requires_grad_(true);
  const at::Tensor y = at::rand({3}).requires_grad_(true);
  std::vector<c10::IValue> stack = {x, y};
  executor.run(stack);
  const auto tuple = stack.at(0).toTuple();
  const auto found = grad(tuple->elements()[0].toTensor().sum(), {x, y});
  EXPECT_TRUE(found[0].defined());
  EXPECT_FALSE(found[1].defined());
}

TEST(TrainingOutputs, AValueThatTheCallerSeesHasItsWholeGradient) {
  GraphExecutor executor(testing::graph_of_source(R"(
def f(x):
    h = torch.tanh(x) * 2
    return h, torch.sigmoid(h).exp()
)"),
                         "f", differentiating());
  const at::Tensor x = at::rand({3}).requires_grad_(true);
  std::vector<c10::IValue> stack = {x};
  executor.run(stack);
  const auto tuple = stack.at(0).toTuple();
  const at::Tensor h = tuple->elements()[0].toTensor();
  h.retain_grad();
  tuple->elements()[1].toTensor().sum().backward();
  const at::Tensor leaf = h.detach().requires_grad_(true);
  EXPECT_TRUE(agree(h.grad(), grad(at::sigmoid(leaf).exp().sum(), {leaf})[0], 1e-6));
}

TEST(TrainingOutputs, AViewOfAResultIsAView) {
  GraphExecutor executor(testing::graph_of_source(R"(
def f(x):
    return torch.sin(x * 2).t()
)"),
                         "f", differentiating());
  const at::Tensor x = at::rand({2, 3}).requires_grad_(true);
  std::vector<c10::IValue> stack = {x};
  executor.run(stack);
  const at::Tensor result = stack.at(0).toTensor();
  EXPECT_TRUE(result.is_view());
  result.mul_(3);
  result.sum().backward();
  EXPECT_TRUE(agree(x.grad(), 3 * grad(at::sin(x * 2).sum(), {x})[0], 1e-6));
}

TEST(TrainingOutputs, AnEffectBetweenACutAndItsPartsLosesNoGradient) {
  GraphExecutor executor(testing::graph_of_source(R"(
def f(x):
    parts = torch.tanh(x * 2).chunk(2)
    noise = torch.rand([1])
    a, b = parts
    return (a.exp() * b).sum() + 0 * noise.sum()
)"),
                         "f", differentiating());
  const at::Tensor x = at::rand({4}).requires_grad_(true);
  std::vector<c10::IValue> stack = {x};
  executor.run(stack);
  const auto parts = at::tanh(x * 2).chunk(2);
  EXPECT_TRUE(agree(grad(stack.at(0).toTensor(), {x})[0], grad((parts[0].exp() * parts[1]).sum(), {x})[0], 1e-6));
}

TEST(TrainingOutputs, DropoutDrawsAndDropsAsInEagerMode) {
  GraphExecutor executor(testing::graph_of_source(R"(
def f(x):
    return torch.dropout(torch.tanh(x), 0.5, True).exp()
)"),
                         "f", differentiating());
  const at::Tensor x = at::rand({50}).requires_grad_(true);
  for (int call = 0; call < 3; ++call) {
    at::manual_seed(7);
    std::vector<c10::IValue> stack = {x};
    executor.run(stack);
    at::manual_seed(7);
    const at::Tensor expected = at::dropout(at::tanh(x), 0.5, true).exp();
    EXPECT_TRUE(agree(stack.at(0), expected, 1e-6));
    EXPECT_TRUE(agree(grad(stack.at(0).toTensor().sum(), {x})[0], grad(expected.sum(), {x})[0], 1e-6));
  }
}

TEST(TrainingOutputs, InstanceNormsUpdateTheirStatistics) {
  GraphExecutor executor(testing::graph_of_source(R"(
def f(x, mean, var):
    y = torch.instance_norm(torch.tanh(x), None, None, mean, var, True, 0.25, 1e-5, False)
    return y.exp()
)"),
                         "f", differentiating());
  const at::Tensor x = at::rand({2, 3, 5}).requires_grad_(true);
  at::Tensor statistics = at::rand({2, 3});
  at::Tensor expected_statistics = statistics.clone();
  for (int call = 0; call < 3; ++call) {
    std::vector<c10::IValue> stack = {x, statistics[0], statistics[1]};
    executor.run(stack);
    const at::Tensor expected =
        at::instance_norm(at::tanh(x), {}, {}, expected_statistics[0], expected_statistics[1], true, 0.25, 1e-5, false)
            .exp();
    EXPECT_TRUE(agree(stack.at(0), expected, 1e-6));
    EXPECT_TRUE(agree(statistics, expected_statistics, 1e-6));
    const at::Tensor weight = at::rand_like(x);
    EXPECT_TRUE(agree(grad((stack.at(0).toTensor() * weight).sum(), {x})[0], grad((expected * weight).sum(), {x})[0], 1e-5));
  }
}

// Rows of indices of either dtype, in float32, of which autocast's casts make bfloat16 and back.
TEST(TrainingOfTexts, BagsOfRowsAndCastsOfAutocastAreInside) {
  for (const at::ScalarType dtype : {at::kLong, at::kInt}) {
    GraphExecutor executor(testing::graph_of_source(R"(
def f(table, rows, offsets):
    bags, a, b, c = torch.embedding_bag(table * 2, rows, offsets, False, 1, False, None, False, None)
    low = torch._autocast_to_reduced_precision(bags, False, True, 5, 15)
    return torch._autocast_to_full_precision(torch.tanh(low), False, True).sum()
)"),
                           "f", differentiating());
    const at::Tensor rows = at::tensor({0, 1, 3, 2, 1, 1}, dtype);
    const at::Tensor offsets = at::tensor({0, 3, 4}, dtype);
    const at::Tensor table = at::linspace(-1, 1, 8).reshape({4, 2}).requires_grad_(true);
    std::vector<c10::IValue> stack = {table, rows, offsets};
    executor.run(stack);
    const at::Tensor got = grad(stack.at(0).toTensor(), {table}).at(0);
    const at::Tensor bags =
        std::get<0>(at::embedding_bag(table * 2, rows, offsets, false, 1, false, {}, false, std::nullopt));
    const at::Tensor expected = grad(at::tanh(bags.to(at::kBFloat16)).to(at::kFloat).sum(), {table}).at(0);
    EXPECT_TRUE(at::allclose(got, expected, 1e-2, 1e-3)) << got << expected;
    const auto gradients = executor.explain().plans.at(1).gradients;
    ASSERT_TRUE(gradients.has_value());
    EXPECT_EQ(gradients->inside, 6U);
    for (const NotDifferentiatedExplanation& entry : gradients->not_differentiated) {
      ADD_FAILURE() << entry.op << ": " << to_string(entry.reason);
    }
  }
}

}  // namespace
}  // namespace sconce
