// What a traced function finds outside of its arguments, or reads past autograd.
#include <sconce/trace.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using Tensors = std::vector<at::Tensor>;
using Function = TracedFunction::Function;

TracedFunction traced(const Function& function) { return trace(function, Options().compile(CompileMode::kBlocking)); }

// Returns the first result, and gradients of arguments that require one; undefined where there is none.
Tensors outcome(const Function& function, const Tensors& arguments) {
  Tensors leaves;
  for (const at::Tensor& argument : arguments) {
    leaves.push_back(argument.detach().clone().set_requires_grad(argument.requires_grad()));
  }
  Tensors found = {function(leaves).front()};
  if (found.front().requires_grad()) {
    (found.front() * found.front()).sum().backward();
  }
  for (const at::Tensor& each : leaves) {
    found.push_back(each.grad());
  }
  return found;
}

void expect_same(const Function& function, const TracedFunction& plan, const Tensors& arguments) {
  for (int call = 0; call < 5; ++call) {
    const Tensors expected = outcome(function, arguments);
    const Tensors found = outcome(plan, arguments);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(found[i].defined(), expected[i].defined()) << "call " << call << ", tensor " << i;
      EXPECT_TRUE(!expected[i].defined() || at::allclose(found[i], expected[i], 1e-4, 1e-5))
          << "call " << call << ", tensor " << i;
    }
  }
}

std::string refusal_of(const TracedFunction& plan) {
  const TraceExplanation explanation = plan.explain();
  return explanation.traces.empty() ? "not recorded" : explanation.traces.front().refusal;
}

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

TEST(TracedData, HasNoGradient) {
  const std::vector<Function> functions = {
      [](const Tensors& in) -> Tensors { return {in[0].data() * in[1]}; },
      [](const Tensors& in) -> Tensors { return {(in[0] * 2).data() * in[1] + in[0].sin()}; },
      [](const Tensors& in) -> Tensors {
        const at::Tensor hard = (in[0] > 0).to(at::kFloat);
        return {(hard - in[0].data() + in[0]) * in[1]};  // straight through
      },
      [](const Tensors& in) -> Tensors { return {in[0].variable_data().t().matmul(in[1]) + in[0].t()[0]}; },
      [](const Tensors& in) -> Tensors { return {in[0].data().data().exp() * in[1]}; },
  };
  for (const Function& function : functions) {
    const TracedFunction plan = traced(function);
    expect_same(function, plan, {leaf({3, 3}), leaf({3, 3})});
    EXPECT_EQ(refusal_of(plan), "");
    const at::NoGradGuard no_grad;
    expect_same(function, plan, {leaf({3, 3}), leaf({3, 3})});
  }
}

// A write in place is seen through `.data()`, which shares the memory.
TEST(TracedData, SharesMemory) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = in[0] * 2;
    const at::Tensor data = x.data();
    x.add_(in[1]);
    return {data * in[1]};
  };
  expect_same(function, traced(function), {leaf({4}), leaf({4})});
}

TEST(TracedCaptures, AreRefusedWhereNobodyOwnsTheMemory) {
  const Function function = [](const Tensors& in) -> Tensors {
    std::vector<float> table(5);
    std::iota(table.begin(), table.end(), 1.5F);
    return {at::from_blob(table.data(), {5}).clone() * in[0]};
  };
  const TracedFunction plan = traced(function);
  expect_same(function, plan, {leaf({5})});
  EXPECT_THAT(refusal_of(plan), ::testing::HasSubstr("memory that no tensor owns"));
}

TEST(TracedCaptures, MayBeMemoryThatATensorOwns) {
  static int deleted = 0;
  {
    const at::Tensor owner =
        at::from_blob(new float[5]{1, 2, 3, 4, 5}, {5}, [](void* memory) { delete[] static_cast<float*>(memory), ++deleted; });
    const at::Tensor weight = leaf({5});
    const Function function = [owner, weight](const Tensors& in) -> Tensors {
      return {owner.slice(0, 1) * weight.slice(0, 1) * in[0] + at::tensor({1.0F, 2.0F, 3.0F, 4.0F})};
    };
    const TracedFunction plan = traced(function);
    expect_same(function, plan, {leaf({4})});
    EXPECT_EQ(refusal_of(plan), "");
    const at::NoGradGuard no_grad;
    owner.mul_(2);
    weight.add_(1);
    expect_same(function, plan, {at::randn({4})});
  }
  EXPECT_EQ(deleted, 1);
}

TEST(TracedCalls, ThatGiveATensorOtherMemoryAreRefused) {
  const Function function = [](const Tensors& in) -> Tensors {
    at::Tensor x = at::empty({0});
    x.set_(in[0]);
    return {x * in[1]};
  };
  const TracedFunction plan = traced(function);
  const at::NoGradGuard no_grad;
  expect_same(function, plan, {at::randn({4, 5}), at::randn({5})});
  EXPECT_THAT(refusal_of(plan), ::testing::HasSubstr("set_"));
}

TEST(TracedCalls, AreRecordedOnceAnomalyModeIsOff) {
  const Function function = [](const Tensors& in) -> Tensors { return {in[0].sin() * in[1]}; };
  const TracedFunction plan = traced(function);
  torch::autograd::AnomalyMode::set_enabled(true);
  expect_same(function, plan, {leaf({3}), leaf({3})});
  torch::autograd::AnomalyMode::set_enabled(false);
  EXPECT_TRUE(plan.explain().traces.empty());
  expect_same(function, plan, {leaf({3}), leaf({3})});
  EXPECT_EQ(refusal_of(plan), "");
}

// A function may throw what it likes while it is recorded. Its arguments are as they would be without a trace.
TEST(TracedCalls, MayThrowAnything) {
  bool throws = true;
  const Function function = [&](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    if (throws) {
      throw std::runtime_error("not today");
    }
    return {in[0] * in[1]};
  };
  const TracedFunction plan = traced(function);
  const at::Tensor w = leaf({3});
  const at::Tensor x = w * 1;
  EXPECT_THROW(plan({x, w}), std::runtime_error);
  throws = false;
  plan({x, w}).front().sum().backward();
  EXPECT_TRUE(at::allclose(w.grad(), w.detach() * 8));
}

}  // namespace
}  // namespace sconce::testing
