#include "training/optimizer_class.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <array>
#include <utility>

namespace sconce {
namespace {

namespace optim = torch::optim;
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

}  // namespace

const OptimizerClass& optimizer_class(const std::string& name) {
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

}  // namespace sconce
