#include "plan/gradients/backward_node.h"

#include "plan/run_plan.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace sconce {

namespace impl = torch::autograd::impl;
using torch::autograd::variable_list;

std::shared_ptr<BackwardNode> BackwardNode::make(std::shared_ptr<const DifferentiableFunction> function,
                                                 c10::ArrayRef<c10::IValue> operands) {
  std::shared_ptr<BackwardNode> node(new BackwardNode(std::move(function)), torch::autograd::deleteNode);
  const DifferentiableFunction& made_from = *node->function_;
  torch::autograd::edge_list edges;
  edges.reserve(made_from.differentiable_inputs.size());
  for (const int64_t position : made_from.differentiable_inputs) {
    const at::Tensor& operand = operands[static_cast<size_t>(position)].toTensor();
    edges.push_back(operand.requires_grad() ? impl::gradient_edge(operand) : torch::autograd::Edge());
  }
  node->set_next_edges(std::move(edges));
  node->inputs_.reserve(made_from.captured_inputs.size());
  for (const int64_t position : made_from.captured_inputs) {
    node->save(node->inputs_, operands[static_cast<size_t>(position)], /*is_output=*/false);
  }
  return node;
}

void BackwardNode::save(std::vector<Saved>& saved, const c10::IValue& value, bool is_output) {
  Saved& each = saved.emplace_back();
  each.is_tensor = value.isTensor() && value.toTensor().defined();
  if (each.is_tensor) {
    each.tensor = torch::autograd::SavedVariable(value.toTensor(), is_output);
    each.version = value.toTensor()._version();
  } else {
    each.value = value;
  }
}

void BackwardNode::connect(c10::ArrayRef<c10::IValue> results) {
  const DifferentiableFunction& function = *function_;
  for (size_t i = 0; i < function.differentiable_outputs.size(); ++i) {
    const at::Tensor& output = results[static_cast<size_t>(function.differentiable_outputs[i])].toTensor();
    bool depends = false;
    for (size_t input = 0; input < function.differentiable_inputs.size(); ++input) {
      depends = depends || (next_edge(input).is_valid() && function.depends(i, input));
    }
    const uint32_t number = add_input_metadata(output);
    if (depends) {
      impl::set_gradient_edge(output, {shared_from_this(), number});
    }
  }
  outputs_.reserve(function.captured_outputs.size());
  for (const int64_t position : function.captured_outputs) {
    save(outputs_, results[static_cast<size_t>(position)], /*is_output=*/true);
  }
  temporaries_.assign(results.begin() + static_cast<std::ptrdiff_t>(function.outputs), results.end());
}

// A temporary as a function of the operands, for backward of backward: a gradient that reaches it comes back to this node.
at::Tensor BackwardNode::connected_temporary(size_t index) {
  const DifferentiableFunction& function = *function_;
  const size_t position = static_cast<size_t>(function.differentiable_temporaries[index]);
  const size_t number = function.differentiable_outputs.size() + index;
  while (num_inputs() <= number) {
    const size_t next = num_inputs() - function.differentiable_outputs.size();
    add_input_metadata(temporaries_[static_cast<size_t>(function.differentiable_temporaries[next])].toTensor());
  }
  at::Tensor connected = temporaries_[position].toTensor().detach();
  impl::set_gradient_edge(connected, {shared_from_this(), static_cast<uint32_t>(number)});
  return connected;
}

bool BackwardNode::is_needed(size_t capture, const std::vector<bool>& is_defined) const {
  for (size_t output = 0; output < is_defined.size(); ++output) {
    for (size_t input = 0; is_defined[output] && input < num_outputs(); ++input) {
      if (next_edge(input).is_valid() && function_->takes(output, capture, input)) {
        return true;
      }
    }
  }
  return false;
}

// Returns a captured value. Its version counts only if it takes a gradient to an input that needs one: eager execution does
// not visit other operators, or has saved nothing for them.
c10::IValue BackwardNode::unpack(const Saved& saved, size_t capture, const std::vector<bool>& is_defined, bool is_output) {
  if (!saved.is_tensor) {
    return saved.value;
  }
  const auto data = saved.tensor.get_raw_data();
  if (data && data->_version() != saved.version && !is_needed(capture, is_defined)) {
    return data->detach();
  }
  return saved.tensor.unpack(is_output ? shared_from_this() : nullptr);
}

void BackwardNode::push_captures(torch::jit::Stack& stack, const std::vector<bool>& is_defined, bool records) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool keeps_nothing = inputs_.empty() && outputs_.empty() && temporaries_.empty();
  TORCH_CHECK(!is_released_ || keeps_nothing, torch::autograd::ERR_BACKWARD_TWICE);
  size_t capture = 0;
  for (const Saved& input : inputs_) {
    stack.push_back(unpack(input, capture++, is_defined, /*is_output=*/false));
  }
  for (const Saved& output : outputs_) {
    stack.push_back(unpack(output, capture++, is_defined, /*is_output=*/true));
  }
  const size_t first = stack.size();
  stack.insert(stack.end(), temporaries_.begin(), temporaries_.end());
  if (records) {
    for (size_t i = 0; i < function_->differentiable_temporaries.size(); ++i) {
      stack[first + static_cast<size_t>(function_->differentiable_temporaries[i])] = connected_temporary(i);
    }
  }
  if (releases_) {
    drop();
  }
}

// Frees the saved values. Requires the lock.
void BackwardNode::drop() {
  is_released_ = true;
  for (std::vector<Saved>* saved : {&inputs_, &outputs_}) {
    for (Saved& each : *saved) {
      each.tensor.reset_data();
      each.value = {};
    }
  }
  std::fill(temporaries_.begin(), temporaries_.end(), c10::IValue());
}

std::vector<c10::IValue> BackwardNode::saved_values() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<c10::IValue> values;
  for (const std::vector<Saved>* saved : {&inputs_, &outputs_}) {
    for (const Saved& each : *saved) {
      values.push_back(each.is_tensor ? c10::IValue(each.tensor.get_raw_data().value_or(at::Tensor())) : each.value);
    }
  }
  values.insert(values.end(), temporaries_.begin(), temporaries_.end());
  return values;
}

void BackwardNode::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  drop();
}

variable_list BackwardNode::apply(variable_list&& gradients) {
  const DifferentiableFunction& function = *function_;
  const size_t outputs = function.differentiable_outputs.size();
  const size_t inputs = function.differentiable_inputs.size();
  const bool records = c10::GradMode::is_enabled();
  const bool reaches_temporaries = std::any_of(gradients.begin() + static_cast<std::ptrdiff_t>(outputs), gradients.end(),
                                               [](const at::Tensor& gradient) { return gradient.defined(); });
  const bool is_recorded = records || reaches_temporaries;
  // An input has no gradient if no output with a gradient depends on it.
  std::vector<bool> is_reached(inputs, reaches_temporaries);
  std::vector<bool> is_defined(outputs);
  torch::jit::Stack stack;
  for (size_t i = 0; i < outputs; ++i) {
    is_defined[i] = gradients[i].defined();
    for (size_t input = 0; input < inputs; ++input) {
      is_reached[input] = is_reached[input] || (is_defined[i] && function.depends(i, input));
    }
    stack.emplace_back(is_defined[i] ? std::move(gradients[i]) : input_metadata(i).zeros_like());
  }
  if (is_recorded) {
    for (size_t i = 0; i < function.differentiable_temporaries.size(); ++i) {
      stack.emplace_back(outputs + i < gradients.size() ? std::move(gradients[outputs + i]) : at::Tensor());
    }
  }
  push_captures(stack, reaches_temporaries ? std::vector<bool>(outputs, true) : is_defined, records);
  run_plan(is_recorded ? *function.recorded_backward : *function.backward, stack, /*may_skip_autograd=*/!records);
  variable_list results(inputs);
  for (size_t i = 0; i < inputs; ++i) {
    if (is_reached[i] && next_edge(i).is_valid()) {
      results[i] = std::move(stack[i]).toTensor();
    }
  }
  return results;
}

}  // namespace sconce
