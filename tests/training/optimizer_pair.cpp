#include "tests/training/optimizer_pair.h"

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>

namespace sconce::testing {
Tensors states_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) {
    return {};
  }
  using namespace torch::optim;
  const OptimizerParamState* const state = found->second.get();
  Tensors tensors;
  if (const auto* adam = dynamic_cast<const AdamParamState*>(state)) {
    tensors = {at::tensor(adam->step()), adam->exp_avg(), adam->exp_avg_sq(), adam->max_exp_avg_sq()};
  } else if (const auto* adam_w = dynamic_cast<const AdamWParamState*>(state)) {
    tensors = {at::tensor(adam_w->step()), adam_w->exp_avg(), adam_w->exp_avg_sq(), adam_w->max_exp_avg_sq()};
  } else if (const auto* sgd = dynamic_cast<const SGDParamState*>(state)) {
    tensors = {sgd->momentum_buffer()};
  } else if (const auto* rmsprop = dynamic_cast<const RMSpropParamState*>(state)) {
    tensors = {at::tensor(rmsprop->step()), rmsprop->square_avg(), rmsprop->momentum_buffer(), rmsprop->grad_avg()};
  } else if (const auto* adagrad = dynamic_cast<const AdagradParamState*>(state)) {
    tensors = {at::tensor(adagrad->step()), adagrad->sum()};
  }
  std::erase_if(tensors, [](const at::Tensor& tensor) { return !tensor.defined(); });
  return tensors;
}

void PrintTo(const OptimizerCase& each, std::ostream* out) { *out << each.name; }

std::vector<OptimizerCase> all_optimizer_cases() {
  using namespace torch::optim;
  return {
      case_of<SGD>("sgd", SGDOptions(0.05)),
      case_of<SGD>("sgd_decay", SGDOptions(0.05).weight_decay(0.01)),
      case_of<SGD>("sgd_momentum", SGDOptions(0.05).momentum(0.9)),
      case_of<SGD>("sgd_dampening", SGDOptions(0.05).momentum(0.9).dampening(0.3).weight_decay(0.01)),
      case_of<SGD>("sgd_nesterov", SGDOptions(0.05).momentum(0.9).nesterov(true)),
      case_of<SGD>("sgd_nesterov_decay", SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.01)),
      case_of<Adam>("adam", AdamOptions(0.01)),
      case_of<Adam>("adam_decay", AdamOptions(0.01).weight_decay(0.02)),
      case_of<Adam>("adam_amsgrad", AdamOptions(0.01).amsgrad(true).betas({0.8, 0.99}).eps(1e-6)),
      case_of<Adam>("adam_amsgrad_decay", AdamOptions(0.01).amsgrad(true).weight_decay(0.02)),
      case_of<AdamW>("adamw", AdamWOptions(0.01)),
      case_of<AdamW>("adamw_no_decay", AdamWOptions(0.01).weight_decay(0)),
      case_of<AdamW>("adamw_amsgrad", AdamWOptions(0.01).amsgrad(true)),
      case_of<RMSprop>("rmsprop", RMSpropOptions(0.01)),
      case_of<RMSprop>("rmsprop_decay", RMSpropOptions(0.01).weight_decay(0.01)),
      case_of<RMSprop>("rmsprop_momentum", RMSpropOptions(0.01).momentum(0.9)),
      case_of<RMSprop>("rmsprop_centered", RMSpropOptions(0.01).centered(true).alpha(0.9)),
      case_of<RMSprop>("rmsprop_all", RMSpropOptions(0.01).centered(true).momentum(0.5).weight_decay(0.01)),
      case_of<Adagrad>("adagrad", AdagradOptions(0.05)),
      case_of<Adagrad>("adagrad_decay", AdagradOptions(0.05).lr_decay(0.01).weight_decay(0.01)),
      case_of<Adagrad>("adagrad_initial", AdagradOptions(0.05).initial_accumulator_value(0.1)),
  };
}

at::Tensor parameter(const at::Tensor& values) { return values.detach().requires_grad_(); }

Tensors make_parameters() {
  at::manual_seed(1);
  return {parameter(at::randn({64})),
          parameter(at::randn({7, 9})),
          parameter(at::randn({3, 5, 2}, at::kDouble)),
          parameter(at::randn({33}).to(at::kBFloat16)),
          parameter(at::randn({33})),
          parameter(at::randn({})),
          parameter(at::randn({1})),
          parameter(at::randn({0, 4})),
          parameter(at::randn({6, 5}).t()),
          parameter(at::randn({8, 8}).slice(1, 0, 8, 3)),
          parameter(at::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast))};
}

OptimizerPair::OptimizerPair(const OptimizerCase& of, Options options, Tensors parameters)
    : own_(std::move(parameters)), is_exact_(options.exact()) {
  for (const at::Tensor& own : own_) {
    theirs_.push_back(at::empty_strided(own.sizes(), own.strides(), own.options().requires_grad(false)));
    theirs_.back().copy_(own.detach());
    theirs_.back().requires_grad_();
    versions_.push_back(theirs_.back()._version() - own._version());
  }
  optimizer_ = of.make(own_);
  eager_ = of.make(theirs_);
  captured_ = std::make_unique<CapturedOptimizer>(optimizer_, options.compile(CompileMode::kBlocking));
}

void OptimizerPair::step(uint64_t seed, size_t skip) {
  at::manual_seed(seed);
  for (size_t i = 0; i < own_.size(); ++i) {
    const bool has_gradient = skip == 0 || i % skip != seed % skip;
    const at::Tensor gradient = at::randn_like(own_[i].detach());
    own_[i].mutable_grad() = has_gradient ? gradient : at::Tensor();
    theirs_[i].mutable_grad() = has_gradient ? gradient.clone() : at::Tensor();
  }
  captured_->step();
  eager_->step();
}

void OptimizerPair::expect_equal() const {
  for (size_t i = 0; i < own_.size(); ++i) {
    SCOPED_TRACE("parameter " + std::to_string(i));
    expect_close(own_[i].detach(), theirs_[i].detach());
    if (i < versions_.size()) {
      EXPECT_EQ(own_[i]._version() + versions_[i], theirs_[i]._version());
    }
    const Tensors own = states_of(*optimizer_, own_[i]);
    const Tensors theirs = states_of(*eager_, theirs_[i]);
    ASSERT_EQ(own.size(), theirs.size());
    for (size_t k = 0; k < own.size(); ++k) {
      expect_close(own[k], theirs[k]);
      EXPECT_EQ(own[k].strides(), theirs[k].strides());
    }
  }
}
void OptimizerPair::expect_all_captured() const {
  const OptimizerExplanation explanation = captured_->explain();
  EXPECT_EQ(explanation.captured_steps, explanation.steps) << to_string(explanation);
  EXPECT_TRUE(explanation.eager_steps.empty()) << to_string(explanation);
}

// Square roots are the nearest numbers; LibTorch's may be one ulp beside them. So an update may be a few ulps of the
// learning rate beside.
void OptimizerPair::expect_close(const at::Tensor& own, const at::Tensor& theirs) const {
  ASSERT_EQ(own.scalar_type(), theirs.scalar_type());
  if (is_exact_) {
    EXPECT_TRUE(at::equal(own, theirs)) << (own - theirs).abs().max();
  } else {
    const double largest = theirs.numel() != 0 ? theirs.abs().max().item<double>() : 0;
    EXPECT_TRUE(at::allclose(own, theirs, /*rtol=*/2e-6, /*atol=*/2e-6 * std::max(1.0, largest)))
        << (own - theirs).abs().max();
  }
}

}  // namespace sconce::testing
