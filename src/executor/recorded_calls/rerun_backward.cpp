#include "executor/recorded_calls/rerun_backward.h"

#include "base/cpu_generator.h"
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

// Sets the generator to a state of it, for the time of a run that draws the same numbers again.
class DrawsAgain {
 public:
  explicit DrawsAgain(const at::Tensor& state) {
    if (state.defined()) {
      now_ = cpu_generator().get_state();
      cpu_generator().set_state(state);
    }
  }
  DrawsAgain(const DrawsAgain&) = delete;
  DrawsAgain& operator=(const DrawsAgain&) = delete;
  ~DrawsAgain() {
    if (now_.defined()) {
      cpu_generator().set_state(now_);
    }
  }

 private:
  at::Tensor now_;
};

}  // namespace

RerunBackward::RerunBackward(std::shared_ptr<const Graph> forward, Form form, const Options& options)
    : forward_(std::move(forward), form.name), form_(std::move(form)) {
  for (const Value* input : forward_.graph().inputs()) {
    read_.push_back(!input->uses().empty());
  }
  if (!form_.draws) {
    calls_.emplace(forward_.graph(), RecordedMethod{.name = form_.name + " (backward)", .gradients_end_at_arguments = true},
                   options);
  }
}

variable_list RerunBackward::rerun(torch::jit::Stack symbols, std::vector<at::Tensor> tensors, const variable_list& incoming,
                                   const std::vector<size_t>& wanted) const {
  const bool records = c10::GradMode::is_enabled();
  const c10::AutoGradMode with_history(true);
  variable_list differentiable;
  for (const size_t number : form_.inputs) {
    tensors[number] = at::alias(tensors[number]);
    differentiable.push_back(tensors[number]);
  }
  torch::jit::Stack stack = std::move(symbols);
  stack.insert(stack.end(), std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end()));
  forward_.run(stack);
  variable_list from;
  variable_list given;
  for (size_t i = 0; i < incoming.size(); ++i) {
    if (incoming[i].defined()) {
      from.push_back(stack[form_.outputs[i]].toTensor());
      given.push_back(incoming[i]);
    }
  }
  variable_list inputs;
  for (const size_t number : wanted) {
    inputs.push_back(differentiable[number]);
  }
  const c10::AutoGradMode as_before(records);
  variable_list found =
      torch::autograd::grad(from, inputs, given, /*retain_graph=*/true, /*create_graph=*/records, /*allow_unused=*/true);
  variable_list all(form_.inputs.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    all[wanted[i]] = std::move(found[i]);
  }
  return all;
}

variable_list RerunBackward::run(const OperandsBefore& operands, const variable_list& gradients,
                                 const std::vector<size_t>& wanted) const {
  std::vector<c10::IValue> before = operands.checked(read_, form_.name);
  const auto first_tensor = before.begin() + static_cast<std::ptrdiff_t>(form_.symbols);
  if (!calls_ || !c10::GradMode::is_enabled()) {
    const DrawsAgain draws(operands.random_state());
    std::vector<at::Tensor> tensors;
    std::transform(first_tensor, before.end(), std::back_inserter(tensors),
                   [](const c10::IValue& value) { return value.toTensor(); });
    return rerun({before.begin(), first_tensor}, std::move(tensors), gradients, wanted);
  }
  torch::jit::Stack stack = {empty_object()};
  stack.insert(stack.end(), first_tensor, before.end());
  for (const at::Tensor& gradient : gradients) {
    stack.push_back(gradient.defined() ? c10::IValue(gradient) : c10::IValue());
  }
  stack.emplace_back(c10::List<int64_t>(std::vector<int64_t>(wanted.begin(), wanted.end())));
  const auto run_as_method = [this](torch::jit::Stack& call) { this->run_as_method(call); };
  if (transform_is_active() || !calls_->run(stack, stack.size(), run_as_method)) {
    this->run_as_method(stack);
  }
  variable_list results;
  for (const c10::IValue& gradient : stack.back().toTupleRef().elements()) {
    results.push_back(gradient.isTensor() ? gradient.toTensor() : at::Tensor());
  }
  return results;
}

void RerunBackward::run_as_method(torch::jit::Stack& stack) const {
  const std::vector<int64_t> given = torch::jit::pop(stack).toIntVector();
  const std::vector<size_t> wanted(given.begin(), given.end());
  variable_list incoming(form_.outputs.size());
  for (size_t i = incoming.size(); i-- > 0;) {
    const c10::IValue gradient = torch::jit::pop(stack);
    incoming[i] = gradient.isTensor() ? gradient.toTensor() : at::Tensor();
  }
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& tensor : c10::ArrayRef(stack).slice(1)) {
    tensors.push_back(tensor.toTensor());
  }
  torch::jit::Stack symbols = symbols_of(form_.pattern, std::span(tensors).first(form_.arguments));
  for (const size_t position : form_.written) {
    tensors[position] = tensors[position].clone();
  }
  std::vector<c10::IValue> gradients;
  for (at::Tensor& gradient : rerun(std::move(symbols), std::move(tensors), incoming, wanted)) {
    gradients.push_back(gradient.defined() ? c10::IValue(std::move(gradient)) : c10::IValue());
  }
  stack.assign({c10::ivalue::Tuple::create(std::move(gradients))});
}

void RerunBackward::wait_for_compiles() const {
  if (calls_) {
    calls_->wait_for_compiles();
  }
}

void RerunBackward::explain(std::vector<Explanation>& plans) const {
  if (calls_) {
    for (Explanation& plan : calls_->explain().plans) {
      plans.push_back(std::move(plan));
    }
  }
}

}  // namespace sconce
