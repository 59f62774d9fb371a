#include "executor/joint/double_backward.h"

#include "plan/step.h"

#include <ATen/core/List.h>
#include <ATen/ops/alias.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>

#include <iterator>
#include <span>
#include <utility>

namespace sconce {

using torch::autograd::variable_list;

namespace {

// In the place of the module of a method.
const c10::intrusive_ptr<c10::ivalue::Object>& empty_object() {
  static const auto object = torch::jit::Module("backward")._ivalue();
  return object;
}

}  // namespace

Rerun::Rerun(const JointPlans& plans, torch::jit::Stack symbols, std::vector<at::Tensor> given) {
  const c10::AutoGradMode with_history(true);
  for (const size_t position : plans.differentiable_tensors) {
    given[position] = at::alias(given[position]);
    tensors.push_back(given[position]);
  }
  torch::jit::Stack stack = std::move(symbols);
  stack.insert(stack.end(), std::make_move_iterator(given.begin()), std::make_move_iterator(given.end()));
  plans.operators->run(stack);
  for (const size_t position : plans.differentiable_results) {
    results.push_back(stack[position].toTensor());
  }
}

variable_list Rerun::gradients(const variable_list& incoming, const std::vector<size_t>& wanted) const {
  variable_list from;
  variable_list given;
  for (size_t i = 0; i < incoming.size(); ++i) {
    if (incoming[i].defined()) {
      from.push_back(results[i]);
      given.push_back(incoming[i]);
    }
  }
  variable_list inputs;
  for (const size_t number : wanted) {
    inputs.push_back(tensors[number]);
  }
  variable_list found = torch::autograd::grad(from, inputs, given, /*retain_graph=*/true,
                                              /*create_graph=*/c10::GradMode::is_enabled(), /*allow_unused=*/true);
  variable_list all(tensors.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    all[wanted[i]] = std::move(found[i]);
  }
  return all;
}

// The stack has an object without attributes, tensors of the call, gradients of its results, and which are wanted.
DoubleBackward::DoubleBackward(const JointPlans& plans, const Options& options)
    : plans_(plans),
      calls_(*plans.operators->graph(), {.name = plans.name + " (backward)", .gradients_end_at_arguments = true}, options) {}

variable_list DoubleBackward::run(const std::vector<at::Tensor>& tensors, const variable_list& incoming,
                                  const std::vector<size_t>& wanted) {
  torch::jit::Stack stack = {empty_object()};
  stack.insert(stack.end(), tensors.begin(), tensors.end());
  for (const at::Tensor& gradient : incoming) {
    stack.push_back(gradient.defined() ? c10::IValue(gradient) : c10::IValue());
  }
  stack.emplace_back(c10::List<int64_t>(std::vector<int64_t>(wanted.begin(), wanted.end())));
  const auto run_by_operators = [this](torch::jit::Stack& call) { this->run_by_operators(call); };
  if (transform_is_active() || !calls_.run(stack, stack.size(), run_by_operators)) {
    this->run_by_operators(stack);
  }
  variable_list gradients;
  for (const c10::IValue& gradient : stack.back().toTupleRef().elements()) {
    gradients.push_back(gradient.isTensor() ? gradient.toTensor() : at::Tensor());
  }
  return gradients;
}

void DoubleBackward::run_by_operators(torch::jit::Stack& stack) const {
  const size_t results = plans_.differentiable_results.size();
  const std::vector<int64_t> given = torch::jit::pop(stack).toIntVector();
  const std::vector<size_t> wanted(given.begin(), given.end());
  variable_list incoming(results);
  for (size_t i = results; i-- > 0;) {
    const c10::IValue gradient = torch::jit::pop(stack);
    incoming[i] = gradient.isTensor() ? gradient.toTensor() : at::Tensor();
  }
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& tensor : c10::ArrayRef(stack).slice(1)) {
    tensors.push_back(tensor.toTensor());
  }
  torch::jit::Stack symbols = symbols_of(plans_.pattern, std::span(tensors).first(plans_.arguments));
  for (const size_t position : plans_.written) {
    tensors[position] = tensors[position].clone();
  }
  std::vector<c10::IValue> gradients;
  for (at::Tensor& gradient : Rerun(plans_, std::move(symbols), std::move(tensors)).gradients(incoming, wanted)) {
    gradients.push_back(gradient.defined() ? c10::IValue(std::move(gradient)) : c10::IValue());
  }
  stack.assign({c10::ivalue::Tuple::create(std::move(gradients))});
}

void DoubleBackward::explain(std::vector<Explanation>& plans) const {
  for (Explanation& plan : calls_.explain().plans) {
    plans.push_back(std::move(plan));
  }
}

}  // namespace sconce
