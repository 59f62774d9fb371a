// What all captured optimizers do alike, shown with one of them.
#include "tests/training/optimizer_pair.h"

#include <sconce/captured_optimizer.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

const OptimizerCase& adam_case() {
  static const OptimizerCase adam = case_of<Adam>("adam", AdamOptions(0.01));
  return adam;
}
const OptimizerCase& momentum_case() {
  static const OptimizerCase sgd = case_of<SGD>("sgd", SGDOptions(0.05).momentum(0.9).dampening(0.5));
  return sgd;
}

TEST(CapturedOptimizer, UpdatesAParameterThatIsThereTwice) {
  for (const OptimizerCase& each : {adam_case(), momentum_case()}) {
    at::Tensor own = parameter(at::ones({20}));
    at::Tensor theirs = parameter(at::ones({20}));
    const OptimizerPtr optimizer = each.make({own, own});
    const OptimizerPtr eager = each.make({theirs, theirs});
    CapturedOptimizer captured(*optimizer, Options().exact(true));
    for (int step = 0; step < 4; ++step) {
      own.mutable_grad() = at::arange(20.0);
      theirs.mutable_grad() = at::arange(20.0);
      captured.step();
      eager->step();
      EXPECT_TRUE(at::equal(own, theirs));
    }
  }
}

TEST(CapturedOptimizer, UpdatesParametersThatShareMemory) {
  const auto make = [] {
    const at::Tensor base = at::ones({30});
    return Tensors{parameter(base.slice(0, 0, 20)), parameter(base.slice(0, 10, 30))};
  };
  Tensors own = make();
  Tensors theirs = make();
  const OptimizerPtr optimizer = adam_case().make(own);
  const OptimizerPtr eager = adam_case().make(theirs);
  CapturedOptimizer captured(*optimizer, Options().compile(CompileMode::kBlocking));
  for (int step = 0; step < 4; ++step) {
    for (size_t i = 0; i < own.size(); ++i) {
      own[i].mutable_grad() = at::arange(20.0) + static_cast<double>(i);
      theirs[i].mutable_grad() = own[i].grad().clone();
    }
    captured.step();
    eager->step();
    EXPECT_TRUE(at::allclose(own[0], theirs[0]));
    EXPECT_TRUE(at::allclose(own[1], theirs[1]));
  }
  EXPECT_EQ(captured.explain().captured_steps, 4U);
}

TEST(CapturedOptimizer, TakesGradientsOfOtherStrides) {
  OptimizerPair pair(adam_case(), Options());
  for (size_t i : {1, 7}) {
    const at::Tensor gradient = at::randn(pair.own()[i].sizes()).t().contiguous().t();
    pair.own()[i].mutable_grad() = gradient;
    pair.theirs()[i].mutable_grad() = gradient.clone();
  }
  pair.captured().step();
  pair.eager().step();
  pair.expect_equal();
  pair.expect_all_captured();
}

// Returns the message that `run` throws.
std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing thrown";
}

std::string only_reason(const CapturedOptimizer& captured) {
  const OptimizerExplanation explanation = captured.explain();
  EXPECT_EQ(explanation.captured_steps, 0U);
  return explanation.eager_steps.size() == 1 ? explanation.eager_steps.front().reason : to_string(explanation);
}

TEST(CapturedOptimizer, LeavesSparseGradientsToTorchOptim) {
  const auto with_sparse_gradient = [] {
    at::Tensor tensor = parameter(at::ones({4, 2}));
    tensor.mutable_grad() = at::eye(4).slice(1, 0, 2).to_sparse();
    return tensor;
  };
  // Adam refuses them, SGD takes them.
  Tensors own = {with_sparse_gradient()};
  const OptimizerPtr adam = adam_case().make(own);
  CapturedOptimizer captured(*adam);
  EXPECT_THAT(message_of([&] { captured.step(); }), HasSubstr("Adam does not support sparse gradients"));
  EXPECT_EQ(only_reason(captured), "a gradient is sparse");
  EXPECT_TRUE(adam->state().empty());

  Tensors theirs = {with_sparse_gradient()};
  const OptimizerPtr sgd = std::make_shared<SGD>(own, 0.1);
  CapturedOptimizer captured_sgd(*sgd);
  captured_sgd.step();
  SGD(theirs, 0.1).step();
  EXPECT_TRUE(at::equal(own[0], theirs[0]));
  EXPECT_EQ(only_reason(captured_sgd), "a gradient is sparse");
}

TEST(CapturedOptimizer, LeavesComplexAndExpandedParametersToTorchOptim) {
  const auto make_complex = [] { return Tensors{parameter(at::ones({4}, at::kComplexFloat))}; };
  Tensors own = make_complex();
  Tensors theirs = make_complex();
  const OptimizerPtr optimizer = std::make_shared<SGD>(own, 0.1);
  CapturedOptimizer captured(*optimizer);
  own[0].mutable_grad() = at::ones({4}, at::kComplexFloat);
  theirs[0].mutable_grad() = at::ones({4}, at::kComplexFloat);
  captured.step();
  SGD(theirs, 0.1).step();
  EXPECT_TRUE(at::equal(own[0], theirs[0]));
  EXPECT_EQ(only_reason(captured), "a parameter has no floating-point numbers");

  Tensors expanded = {parameter(at::ones({1}).expand({4}))};
  expanded[0].mutable_grad() = at::ones({4});
  const OptimizerPtr adam = adam_case().make(expanded);
  CapturedOptimizer captured_adam(*adam);
  EXPECT_THAT(message_of([&] { captured_adam.step(); }), HasSubstr("unsupported operation"));
  EXPECT_EQ(only_reason(captured_adam), "elements of a parameter share memory");
}

TEST(CapturedOptimizer, GoesOnAfterAnError) {
  OptimizerPair pair(adam_case(), Options());
  pair.step(1);
  const at::Tensor kept = pair.own()[3].detach();
  // The state no longer fits: an error in an eager step, and so in a captured one.
  const at::Tensor other = at::ones({5});
  for (Tensors* parameters : {&pair.own(), &pair.theirs()}) {
    (*parameters)[3].set_data(other.clone());
    (*parameters)[3].mutable_grad() = at::ones({5});
  }
  const std::string expected = message_of([&] { pair.eager().step(); });
  EXPECT_THAT(expected, HasSubstr("must match"));
  EXPECT_EQ(message_of([&] { pair.captured().step(); }), expected);
  for (Tensors* parameters : {&pair.own(), &pair.theirs()}) {
    (*parameters)[3].set_data(kept.clone());
  }
  pair.step(2);
  pair.expect_equal();
}

// A subclass of a known class may do anything in its step.
class OwnAdam : public Adam {
 public:
  using Adam::Adam;
  at::Tensor step(LossClosure closure = nullptr) override {
    ++steps;
    return Adam::step(std::move(closure));
  }
  int steps = 0;
};

TEST(CapturedOptimizer, StepsOtherClassesEagerly) {
  Tensors parameters = {parameter(at::ones({4}))};
  parameters[0].mutable_grad() = at::ones({4});
  OwnAdam own(parameters, AdamOptions(0.1));
  CapturedOptimizer captured(own);
  captured.step();
  EXPECT_EQ(own.steps, 1);
  EXPECT_THAT(captured.explain().optimizer, HasSubstr("OwnAdam"));
  EXPECT_EQ(only_reason(captured), captured.explain().why_eager);
  EXPECT_THAT(to_string(captured.explain()), HasSubstr("1 eager: "));

  torch::optim::LBFGS lbfgs(parameters, torch::optim::LBFGSOptions(0.1));
  CapturedOptimizer captured_lbfgs(lbfgs);
  const at::Tensor loss = captured_lbfgs.step([&] {
    lbfgs.zero_grad();
    at::Tensor squares = (parameters[0] * parameters[0]).sum();
    squares.backward();
    return squares;
  });
  EXPECT_TRUE(loss.defined());
  EXPECT_THAT(captured_lbfgs.explain().why_eager, HasSubstr("not known"));
}

TEST(CapturedOptimizer, CallsTheClosureWithGradients) {
  Tensors parameters = {parameter(at::ones({4}))};
  Adam adam(parameters, AdamOptions(0.1));
  CapturedOptimizer captured(adam);
  const c10::NoGradGuard no_grad;
  const at::Tensor loss = captured.step([&] {
    captured.zero_grad();
    at::Tensor squares = (parameters[0] * parameters[0]).sum();
    squares.backward();
    return squares;
  });
  EXPECT_EQ(loss.item<float>(), 4);
  EXPECT_TRUE(at::allclose(parameters[0], at::full({4}, 0.9)));
  EXPECT_EQ(captured.explain().captured_steps, 1U);
  captured.zero_grad();
  EXPECT_FALSE(parameters[0].grad().defined());
  EXPECT_THROW(captured.step([]() -> at::Tensor { throw std::runtime_error("of the closure"); }), std::runtime_error);
  EXPECT_FALSE(captured.step().defined());
}

TEST(CapturedOptimizer, HoldsNoGradient) {
  OptimizerPair pair(adam_case(), Options());
  pair.step(1);
  for (const at::Tensor& own : pair.own()) {
    EXPECT_EQ(own.grad().use_count(), 1U);
  }
}

TEST(CapturedOptimizer, SaysThatItsOptimizerWasDestroyed) {
  Tensors parameters = {parameter(at::ones({4}))};
  OptimizerPtr optimizer = adam_case().make(parameters);
  CapturedOptimizer captured(optimizer);
  captured.step();
  EXPECT_EQ(optimizer.use_count(), 1);
  optimizer.reset();
  EXPECT_THAT(message_of([&] { captured.step(); }), HasSubstr("Adam, was destroyed"));
  EXPECT_THAT(message_of([&] { captured.zero_grad(); }), HasSubstr("was destroyed"));
  EXPECT_EQ(captured.explain().steps, 1U);
}

TEST(CapturedOptimizer, HasOneKernelForAllSizes) {
  Tensors parameters;
  for (int64_t size = 2; size < 60; ++size) {
    parameters.push_back(parameter(at::ones({size, size})));
  }
  OptimizerPair pair(adam_case(), Options(), parameters);
  pair.step(1);
  pair.step(2);
  pair.expect_equal();
  const OptimizerExplanation explanation = pair.captured().explain();
  ASSERT_EQ(explanation.plans.size(), 1U);
  const PlanExplanation& plan = explanation.plans[0].plans[0];
  EXPECT_EQ(plan.groups, 1U) << plan.text;
  EXPECT_EQ(plan.runs, 2U);
  for (const NotPreparedExplanation& each : plan.not_prepared) {
    EXPECT_EQ(each.times, 0U) << each.op << ": " << to_string(each.reason);
  }
}

}  // namespace
}  // namespace sconce::testing
