// The rules restate torch/csrc/api/src/optim/*.cpp, operator for operator.
#include "training/update_rule.h"

#include "base/plain_keys.h"
#include "kernels/packed/packed_weights.h"

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <type_traits>
#include <typeinfo>

namespace sconce {
namespace {

// Returns whether kernels read the tensor as they read the parameter.
bool is_like(const at::Tensor& tensor, const at::Tensor& param) {
  return tensor.defined() && tensor.scalar_type() == param.scalar_type() && tensor.sizes() == param.sizes();
}

// Returns whether the tensor is dense, on the parameter's device, and nothing but a tensor (rule R10).
bool is_plain(const at::Tensor& tensor, const at::Tensor& param) {
  return tensor.device() == param.device() && are_plain(tensor.key_set(), tensor.device().type()) &&
         !tensor.unsafeGetTensorImpl()->is_wrapped_number() && !tensor._fw_grad(/*level=*/0).defined();
}

// An element of a written tensor must not stand for two.
bool may_be_written(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() || at::has_internal_overlap(tensor) != at::MemOverlap::Yes;
}

at::Tensor zeros_of(const at::Tensor& tensor) { return at::zeros_like(tensor, {}, at::MemoryFormat::Preserve); }

// Casts what belongs to the optimizer's class.
template <typename OptionsClass, typename StateClass>
class TypedRule : public UpdateRule {
 public:
  using UpdateRule::UpdateRule;

 protected:
  static const OptionsClass& typed(const Options& options) { return static_cast<const OptionsClass&>(options); }
  static const StateClass& typed(const State& state) { return static_cast<const StateClass&>(state); }
  static StateClass& typed(State& state) { return static_cast<StateClass&>(state); }
};

constexpr unsigned kDecays = 1;  // the bit of a variant with weight decay
constexpr auto kAddDecay = "grad = grad.add(param, alpha=weight_decay)\n";

// Adam adds the weight decay to the gradient, AdamW takes it off the parameter.
template <typename OptionsClass, typename StateClass>
class AdamRule final : public TypedRule<OptionsClass, StateClass> {
 public:
  using Base = TypedRule<OptionsClass, StateClass>;
  using Base::typed;
  using typename UpdateRule::Options;
  using typename UpdateRule::State;
  static constexpr bool kIsAdamW = std::is_same_v<OptionsClass, torch::optim::AdamWOptions>;
  static constexpr unsigned kAmsgrad = 2;

  AdamRule() : Base(kIsAdamW ? "AdamW" : "Adam", /*counts_versions=*/true) {}

  unsigned variant(const Options& options) const override {
    return (typed(options).weight_decay() != 0 ? kDecays : 0) | (typed(options).amsgrad() ? kAmsgrad : 0);
  }

  Update update(unsigned variant) const override {
    Update update{{"exp_avg", "exp_avg_sq"},
                  {"step_size", "root"},
                  {"beta1", "rest1", "beta2", "rest2", "eps", "weight_decay", "shrink"},
                  {}};
    if ((variant & kDecays) != 0) {
      update.body += kIsAdamW ? "param.mul_(shrink)\n" : kAddDecay;
    }
    update.body +=
        "exp_avg.mul_(beta1).add_(grad, alpha=rest1)\n"
        "exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=rest2)\n";
    if ((variant & kAmsgrad) != 0) {
      update.states.push_back("max_exp_avg_sq");
      update.body += "max_exp_avg_sq.copy_(torch.maximum(exp_avg_sq, max_exp_avg_sq))\n";
    }
    const std::string square = update.states.back();
    update.body += "param.addcdiv_(exp_avg, (" + square + ".sqrt() / root).add_(eps), value=step_size)\n";
    return update;
  }

  std::vector<double> numbers(const Options& options) const override {
    const OptionsClass& own = typed(options);
    const auto [beta1, beta2] = own.betas();
    return {beta1, 1 - beta1, beta2, 1 - beta2, own.eps(), own.weight_decay(), 1 - own.lr() * own.weight_decay()};
  }

  bool has_state(unsigned /*variant*/) const override { return true; }
  std::unique_ptr<State> make_state(const Options& options, const at::Tensor& param,
                                    const at::Tensor& /*grad*/) const override {
    auto state = std::make_unique<StateClass>();
    state->step(0);
    state->exp_avg(zeros_of(param));
    state->exp_avg_sq(zeros_of(param));
    if (typed(options).amsgrad()) {
      state->max_exp_avg_sq(zeros_of(param));
    }
    return state;
  }
  UpdateRule::StateTensors tensors_of(const State& state, unsigned /*variant*/) const override {
    const StateClass& own = typed(state);
    return {&own.exp_avg(), &own.exp_avg_sq(), &own.max_exp_avg_sq()};
  }

  void step_numbers(const State& state, bool /*is_first*/, const Options& options,
                    UpdateRule::StepNumbers& numbers) const override {
    const int64_t step = typed(state).step() + 1;
    if (numbers.step != step) {
      const auto [beta1, beta2] = typed(options).betas();
      numbers = {step, {-(typed(options).lr() / (1 - std::pow(beta1, step))), std::sqrt(1 - std::pow(beta2, step))}};
    }
  }
  void count_step(State& state) const override { typed(state).step(typed(state).step() + 1); }
};

class SgdRule final : public TypedRule<torch::optim::SGDOptions, torch::optim::SGDParamState> {
 public:
  static constexpr unsigned kMomentum = 2;
  static constexpr unsigned kNesterov = 4;

  SgdRule() : TypedRule("SGD", /*counts_versions=*/false) {}

  unsigned variant(const Options& options) const override {
    const auto& own = typed(options);
    return (own.weight_decay() != 0 ? kDecays : 0) |
           (own.momentum() != 0 ? kMomentum | (own.nesterov() ? kNesterov : 0) : 0);
  }

  Update update(unsigned variant) const override {
    Update update{{}, {}, {"step_size", "momentum", "weight_decay"}, {}};
    if ((variant & kDecays) != 0) {
      update.body += kAddDecay;
    }
    std::string direction = "grad";
    if ((variant & kMomentum) != 0) {
      update.states = {"momentum_buffer"};
      update.step_numbers = {"keep", "take"};
      update.body += "momentum_buffer.mul_(keep).add_(grad, alpha=take)\n";
      direction = (variant & kNesterov) != 0 ? "grad.add(momentum_buffer, alpha=momentum)" : "momentum_buffer";
    }
    update.body += "param.add_(" + direction + ", alpha=step_size)\n";
    return update;
  }

  std::vector<double> numbers(const Options& options) const override {
    return {-1 * typed(options).lr(), typed(options).momentum(), typed(options).weight_decay()};
  }

  bool has_state(unsigned variant) const override { return (variant & kMomentum) != 0; }
  // In its first step a buffer becomes a copy of the gradient. -0.0 * 1 + x * 1 is x, to the bit.
  std::unique_ptr<State> make_state(const Options& options, const at::Tensor& param, const at::Tensor& grad) const override {
    const double decay = typed(options).weight_decay();
    auto state = std::make_unique<torch::optim::SGDParamState>();
    state->momentum_buffer((decay != 0 ? grad.add(param, decay) : at::clone(grad)).detach().fill_(-0.0));
    return state;
  }
  StateTensors tensors_of(const State& state, unsigned /*variant*/) const override {
    return {&typed(state).momentum_buffer()};
  }
  void step_numbers(const State& /*state*/, bool is_first, const Options& options, StepNumbers& numbers) const override {
    numbers.values = {is_first ? 1 : typed(options).momentum(), is_first ? 1 : 1 - typed(options).dampening()};
  }
  void count_step(State& /*state*/) const override {}
};

class RmspropRule final : public TypedRule<torch::optim::RMSpropOptions, torch::optim::RMSpropParamState> {
 public:
  static constexpr unsigned kMomentum = 2;
  static constexpr unsigned kCentered = 4;

  RmspropRule() : TypedRule("RMSprop", /*counts_versions=*/true) {}

  unsigned variant(const Options& options) const override {
    const auto& own = typed(options);
    return (own.weight_decay() != 0 ? kDecays : 0) | (own.momentum() > 0 ? kMomentum : 0) | (own.centered() ? kCentered : 0);
  }

  Update update(unsigned variant) const override {
    Update update{{"square_avg"}, {}, {"alpha", "rest", "eps", "weight_decay", "momentum", "step_size"}, {}};
    if ((variant & kDecays) != 0) {
      update.body += kAddDecay;
    }
    update.body += "square_avg.mul_(alpha).addcmul_(grad, grad, value=rest)\n";
    if ((variant & kCentered) != 0) {
      update.states.push_back("grad_avg");
      update.body +=
          "grad_avg.mul_(alpha).add_(grad, alpha=rest)\n"
          "avg = square_avg.addcmul(grad_avg, grad_avg, value=-1).sqrt_().add_(eps)\n";
    } else {
      update.body += "avg = square_avg.sqrt().add_(eps)\n";
    }
    if ((variant & kMomentum) != 0) {
      update.states.push_back("momentum_buffer");
      update.body +=
          "momentum_buffer.mul_(momentum).addcdiv_(grad, avg)\n"
          "param.add_(momentum_buffer, alpha=step_size)\n";
    } else {
      update.body += "param.addcdiv_(grad, avg, value=step_size)\n";
    }
    return update;
  }

  std::vector<double> numbers(const Options& options) const override {
    const auto& own = typed(options);
    return {own.alpha(), 1 - own.alpha(), own.eps(), own.weight_decay(), own.momentum(), -own.lr()};
  }

  bool has_state(unsigned /*variant*/) const override { return true; }
  std::unique_ptr<State> make_state(const Options& options, const at::Tensor& param,
                                    const at::Tensor& /*grad*/) const override {
    auto state = std::make_unique<torch::optim::RMSpropParamState>();
    state->step(0);
    state->square_avg(zeros_of(param));
    if (typed(options).momentum() > 0) {
      state->momentum_buffer(zeros_of(param));
    }
    if (typed(options).centered()) {
      state->grad_avg(zeros_of(param));
    }
    return state;
  }
  StateTensors tensors_of(const State& state, unsigned variant) const override {
    const auto& own = typed(state);
    StateTensors tensors{&own.square_avg(), &own.momentum_buffer()};
    if ((variant & kCentered) != 0) {
      tensors = {&own.square_avg(), &own.grad_avg(), &own.momentum_buffer()};
    }
    return tensors;
  }
  void step_numbers(const State& /*state*/, bool /*is_first*/, const Options& /*options*/,
                    StepNumbers& /*numbers*/) const override {}
  void count_step(State& state) const override { typed(state).step(typed(state).step() + 1); }
};

class AdagradRule final : public TypedRule<torch::optim::AdagradOptions, torch::optim::AdagradParamState> {
 public:
  AdagradRule() : TypedRule("Adagrad", /*counts_versions=*/true, /*makes_states=*/false) {}

  unsigned variant(const Options& options) const override { return typed(options).weight_decay() != 0 ? kDecays : 0; }

  Update update(unsigned variant) const override {
    Update update{{"sum"}, {"step_size"}, {"eps", "weight_decay"}, {}};
    if ((variant & kDecays) != 0) {
      update.body += kAddDecay;
    }
    update.body +=
        "sum.addcmul_(grad, grad, value=1.0)\n"
        "param.addcdiv_(grad, sum.sqrt().add_(eps), value=step_size)\n";
    return update;
  }

  std::vector<double> numbers(const Options& options) const override {
    return {typed(options).eps(), typed(options).weight_decay()};
  }

  bool has_state(unsigned /*variant*/) const override { return true; }
  // The optimizer's constructor makes the states.
  std::unique_ptr<State> make_state(const Options& /*options*/, const at::Tensor& /*param*/,
                                    const at::Tensor& /*grad*/) const override {
    return nullptr;
  }
  StateTensors tensors_of(const State& state, unsigned /*variant*/) const override { return {&typed(state).sum()}; }
  void step_numbers(const State& state, bool /*is_first*/, const Options& options, StepNumbers& numbers) const override {
    const int64_t step = typed(state).step() + 1;
    numbers.values[0] = -(typed(options).lr() / (1 + static_cast<double>(step - 1) * typed(options).lr_decay()));
  }
  void count_step(State& state) const override { typed(state).step(typed(state).step() + 1); }
};

}  // namespace

const UpdateRule* find_update_rule(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  static const AdamRule<AdamOptions, AdamParamState> adam;
  static const AdamRule<AdamWOptions, AdamWParamState> adam_w;
  static const SgdRule sgd;
  static const RmspropRule rmsprop;
  static const AdagradRule adagrad;
  const std::type_info& type = typeid(optimizer);
  return type == typeid(Adam)      ? static_cast<const UpdateRule*>(&adam)
         : type == typeid(AdamW)   ? static_cast<const UpdateRule*>(&adam_w)
         : type == typeid(SGD)     ? static_cast<const UpdateRule*>(&sgd)
         : type == typeid(RMSprop) ? static_cast<const UpdateRule*>(&rmsprop)
         : type == typeid(Adagrad) ? static_cast<const UpdateRule*>(&adagrad)
                                   : nullptr;
}

void UpdateRule::note_step(const at::Tensor& param) const {
  if (!counts_versions_) {
    note_written(param);
  }
}

bool kernels_round_otherwise(const Update& update) { return update.body.find("sqrt") != std::string::npos; }

UpdateRule::State* find_state(torch::optim::Optimizer& optimizer, const at::Tensor& param) {
  const auto found = optimizer.state().find(param.unsafeGetTensorImpl());
  return found != optimizer.state().end() ? found->second.get() : nullptr;
}

const char* why_no_plan(const at::Tensor& param, const at::Tensor& grad) {
  return grad.is_sparse() ? "a gradient is sparse"
         : !is_plain(param, param) || !is_plain(grad, param)
             ? "a parameter or gradient is no plain dense tensor on one device"
         : !c10::isFloatingType(param.scalar_type()) ? "a parameter has no floating-point numbers"
         : !is_like(grad, param)                     ? "a gradient has another dtype or other sizes than its parameter"
         : !may_be_written(param)                    ? "elements of a parameter share memory"
                                                     : nullptr;
}

const char* why_no_plan_for_state(const at::Tensor& tensor, const at::Tensor& param) {
  return is_like(tensor, param) && is_plain(tensor, param) && may_be_written(tensor)
             ? nullptr
             : "a state is missing, or is no tensor like its parameter";
}

}  // namespace sconce
