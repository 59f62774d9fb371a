#include "in_place/optimizer_mirror.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <array>
#include <functional>
#include <utility>

namespace sconce {

namespace optim = torch::optim;

// What differs from class to class.
struct OptimizerClass {
  using VisitTensor = std::function<void(const char* name, at::Tensor& tensor)>;
  using VisitOption = std::function<double(const char* name)>;  // returns the option's value

  const char* name;
  std::unique_ptr<optim::Optimizer> (*make)(std::vector<optim::OptimizerParamGroup> groups);
  void (*set_options)(optim::OptimizerOptions& options, const VisitOption& value);
  std::unique_ptr<optim::OptimizerParamState> (*make_state)();
  void (*visit_tensors)(optim::OptimizerParamState& state, const VisitTensor& visit);
  int64_t* (*steps)(optim::OptimizerParamState& state);  // null for a class that does not count them
};

namespace {

using VisitTensor = OptimizerClass::VisitTensor;
using VisitOption = OptimizerClass::VisitOption;

void set(optim::SGDOptions& options, const VisitOption& value) {
  options.lr(value("lr")).momentum(value("momentum")).dampening(value("dampening"));
  options.weight_decay(value("weight_decay")).nesterov(value("nesterov") != 0);
}
template <typename AdamOptions>  // AdamW's, too
void set(AdamOptions& options, const VisitOption& value) {
  options.lr(value("lr")).betas({value("beta1"), value("beta2")}).eps(value("eps"));
  options.weight_decay(value("weight_decay")).amsgrad(value("amsgrad") != 0);
}
void set(optim::RMSpropOptions& options, const VisitOption& value) {
  options.lr(value("lr")).alpha(value("alpha")).eps(value("eps"));
  options.weight_decay(value("weight_decay")).momentum(value("momentum")).centered(value("centered") != 0);
}
void set(optim::AdagradOptions& options, const VisitOption& value) {
  options.lr(value("lr")).lr_decay(value("lr_decay")).eps(value("eps"));
  options.weight_decay(value("weight_decay")).initial_accumulator_value(value("initial_accumulator_value"));
}

void visit(optim::SGDParamState& state, const VisitTensor& visit) { visit("momentum_buffer", state.momentum_buffer()); }
template <typename AdamState>
void visit(AdamState& state, const VisitTensor& visit) {
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}
void visit(optim::RMSpropParamState& state, const VisitTensor& visit) {
  visit("square_avg", state.square_avg());
  visit("momentum_buffer", state.momentum_buffer());
  visit("grad_avg", state.grad_avg());
}
void visit(optim::AdagradParamState& state, const VisitTensor& visit) { visit("sum", state.sum()); }

template <typename Optimizer, typename Options, typename State>
OptimizerClass class_named(const char* name) {
  return {.name = name,
          .make = [](std::vector<optim::OptimizerParamGroup> groups) -> std::unique_ptr<optim::Optimizer> {
            return std::make_unique<Optimizer>(std::move(groups), Options(1e-3));
          },
          .set_options = [](optim::OptimizerOptions& options,
                            const VisitOption& value) { set(static_cast<Options&>(options), value); },
          .make_state = []() -> std::unique_ptr<optim::OptimizerParamState> { return std::make_unique<State>(); },
          .visit_tensors = [](optim::OptimizerParamState& state,
                              const VisitTensor& visit_tensor) { visit(static_cast<State&>(state), visit_tensor); },
          .steps = [](optim::OptimizerParamState& state) -> int64_t* {
            if constexpr (requires(State& counted) { counted.step(); }) {
              return &static_cast<State&>(state).step();
            } else {
              return nullptr;
            }
          }};
}

const OptimizerClass& find_class(const std::string& name) {
  static const std::array classes = {
      class_named<optim::SGD, optim::SGDOptions, optim::SGDParamState>("SGD"),
      class_named<optim::Adam, optim::AdamOptions, optim::AdamParamState>("Adam"),
      class_named<optim::AdamW, optim::AdamWOptions, optim::AdamWParamState>("AdamW"),
      class_named<optim::RMSprop, optim::RMSpropOptions, optim::RMSpropParamState>("RMSprop"),
      class_named<optim::Adagrad, optim::AdagradOptions, optim::AdagradParamState>("Adagrad")};
  for (const OptimizerClass& each : classes) {
    if (name == each.name) {
      return each;
    }
  }
  TORCH_CHECK(false, "sconce knows SGD, Adam, AdamW, RMSprop and Adagrad, not ", name);
}

std::vector<optim::OptimizerParamGroup> groups_of(const std::vector<std::vector<at::Tensor>>& groups) {
  return {groups.begin(), groups.end()};
}

}  // namespace

OptimizerMirror::OptimizerMirror(const std::string& name, const std::vector<std::vector<at::Tensor>>& groups)
    : class_(find_class(name)), optimizer_(class_.make(groups_of(groups))) {
  for (const std::vector<at::Tensor>& group : groups) {
    parameters_.insert(parameters_.end(), group.begin(), group.end());
  }
  clear_states();  // Adagrad has made some
}

void OptimizerMirror::set_options(size_t group, const Numbers& options) {
  size_t read = 0;
  class_.set_options(optimizer_->param_groups().at(group).options(), [&](const char* name) {
    const auto found = options.find(name);
    TORCH_CHECK(found != options.end(), class_.name, " needs the option ", name);
    ++read;
    return found->second;
  });
  TORCH_CHECK(read == options.size(), class_.name, " has ", read, " options, and not ", options.size());
}

void OptimizerMirror::set_state(size_t parameter, int64_t steps, const StateTensors& tensors) {
  auto state = class_.make_state();
  if (int64_t* const count = class_.steps(*state)) {
    *count = steps;
  }
  size_t set = 0;
  class_.visit_tensors(*state, [&](const char* name, at::Tensor& tensor) {
    if (const auto found = tensors.find(name); found != tensors.end()) {
      tensor = found->second;
      ++set;
    }
  });
  TORCH_CHECK(set == tensors.size(), "the state of ", class_.name, " has other tensors");
  optimizer_->state()[parameters_.at(parameter).unsafeGetTensorImpl()] = std::move(state);
}

std::vector<int64_t> OptimizerMirror::steps() const {
  std::vector<int64_t> steps;
  for (const at::Tensor& parameter : parameters_) {
    const auto found = optimizer_->state().find(parameter.unsafeGetTensorImpl());
    const int64_t* const count = found != optimizer_->state().end() ? class_.steps(*found->second) : nullptr;
    steps.push_back(found == optimizer_->state().end() ? -1 : count != nullptr ? *count : 0);
  }
  return steps;
}

OptimizerMirror::StateTensors OptimizerMirror::state(size_t parameter) const {
  StateTensors tensors;
  const auto found = optimizer_->state().find(parameters_.at(parameter).unsafeGetTensorImpl());
  if (found != optimizer_->state().end()) {
    class_.visit_tensors(*found->second, [&](const char* name, at::Tensor& tensor) {
      if (tensor.defined()) {
        tensors.emplace(name, tensor);
      }
    });
  }
  return tensors;
}

}  // namespace sconce
