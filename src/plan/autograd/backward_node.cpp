#include "plan/autograd/backward_node.h"

#include "base/same_number.h"
#include "base/storage_of.h"
#include "plan/autograd/alias_of.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace sconce {

namespace impl = torch::autograd::impl;
using torch::autograd::variable_list;

namespace {

variable_list gradients_on(const torch::jit::Stack& stack) {
  variable_list gradients;
  for (const c10::IValue& value : stack) {
    gradients.push_back(value.toTensor());
  }
  return gradients;
}

bool has_defined(const variable_list& tensors) {
  return std::ranges::any_of(tensors, [](const at::Tensor& tensor) { return tensor.defined(); });
}

// Calls `visit` for the tensor, or for every tensor in the list.
void for_each_tensor(const c10::IValue& value, c10::function_ref<void(const at::Tensor&)> visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      for_each_tensor(element, visit);
    }
  }
}

// Returns the tensor, or a list of the same form, with every tensor replaced.
c10::IValue with_tensors(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> replace) {
  if (value.isTensor()) {
    return replace(value.toTensor());
  }
  const auto elements = value.toListRef();
  c10::impl::GenericList list(value.type()->expectRef<c10::ListType>().getElementType());
  list.reserve(elements.size());
  for (const c10::IValue& element : elements) {
    list.push_back(with_tensors(element, replace));
  }
  return list;
}

// Returns an alias of the tensor. A view of what the forward graph computed gets a copy: its memory has another version.
at::Tensor own_tensor(const at::Tensor& tensor) {
  return storage_of(tensor) == nullptr || tensor.storage().use_count() > 1 ? tensor.detach().clone() : alias_of(tensor);
}

// Returns a copy of a list of numbers: those that hold the list may change it until backward.
c10::IValue own_list(const c10::IValue& value) {
  return value.isIntList() || value.isDoubleList() || value.isBoolList() ? value.deepcopy() : value;
}

}  // namespace

std::shared_ptr<BackwardNode> BackwardNode::make(std::shared_ptr<const DifferentiableFunction> function,
                                                 c10::ArrayRef<c10::IValue> operands,
                                                 std::shared_ptr<const OperandsBefore> before) {
  std::shared_ptr<BackwardNode> node(new BackwardNode(std::move(function)), torch::autograd::deleteNode);
  node->before_ = std::move(before);
  const DifferentiableFunction& made_from = *node->function_;
  torch::autograd::edge_list edges;
  edges.reserve(made_from.signature.inputs.size());
  for (const size_t position : made_from.signature.inputs) {
    const at::Tensor& operand = operands[position].toTensor();
    const bool requires_grad = operand.requires_grad();
    node->requires_grad_.push_back(requires_grad);
    edges.push_back(requires_grad ? impl::gradient_edge(operand) : torch::autograd::Edge());
  }
  node->set_next_edges(std::move(edges));
  node->inputs_.reserve(made_from.signature.saved_inputs.size());
  for (const GradientSignature::Saved& saved : made_from.signature.saved_inputs) {
    node->inputs_.push_back(saved_of(operands[saved.position], /*is_output=*/false));
  }
  for (const size_t number : made_from.written_inputs) {
    node->written_.push_back(operands[made_from.signature.saved_inputs[number].position].toTensor());
  }
  if (made_from.returns_of_blocks) {
    for (const c10::IValue& operand : operands) {
      if (operand.isTensor()) {
        node->given_.emplace_back(operand.toTensor().getIntrusivePtr());
      }
    }
  }
  return node;
}

BackwardNode::Saved BackwardNode::saved_of(const c10::IValue& value, bool is_output) {
  Saved each;
  each.is_tensor = value.isTensor() && value.toTensor().defined();
  if (each.is_tensor) {
    each.tensor = torch::autograd::SavedVariable(value.toTensor(), is_output);
    each.version = value.toTensor()._version();
  } else {
    each.value = own_list(value);
  }
  return each;
}

void BackwardNode::connect(torch::jit::Stack& results) {
  const GradientSignature& signature = function_->signature;
  OwnTensors own;
  const auto first_intermediate = results.begin() + static_cast<std::ptrdiff_t>(function_->outputs);
  const auto first_condition = first_intermediate + static_cast<std::ptrdiff_t>(signature.intermediates);
  auto condition = first_condition;
  for (const GradientSignature::Output& each : signature.outputs) {
    const std::vector<bool>& reached = !each.otherwise || (condition++)->toBool() ? each.reaches : *each.otherwise;
    bool depends = function_->is_recorded;
    for (size_t input = 0; input < reached.size(); ++input) {
      depends = depends || (requires_grad_[input] && reached[input]);
    }
    first_slots_.push_back(num_inputs());
    c10::IValue& output = results[each.position];
    output = with_tensors(output, [&](const at::Tensor& tensor) { return connected_output(tensor, depends, own); });
  }
  first_slots_.push_back(num_inputs());
  given_.clear();
  outputs_.reserve(signature.saved_outputs.size());
  for (const GradientSignature::Saved& saved : signature.saved_outputs) {
    outputs_.push_back(saved_of(results[saved.position], /*is_output=*/true));
  }
  for (size_t i = 0; i < written_.size(); ++i) {
    inputs_[function_->written_inputs[i]] = saved_of(written_[i], /*is_output=*/false);
  }
  written_.clear();
  intermediates_.assign(first_intermediate, first_condition);
  for (const c10::IValue& intermediate : intermediates_) {
    if (intermediate.isList()) {
      for_each_tensor(intermediate, [this](const at::Tensor& tensor) { versions_.push_back(tensor._version()); });
    }
  }
}

// Returns the tensor that the node's caller gets for an output. A branch or loop may return an operand as it is, whose
// gradient does not come through this node.
at::Tensor BackwardNode::connected_output(const at::Tensor& output, bool depends, OwnTensors& own) {
  const uint32_t slot = add_input_metadata(output);
  const bool is_given = std::ranges::any_of(
      given_, [&](const auto& operand) { return operand._unsafe_get_target() == output.unsafeGetTensorImpl(); });
  if (is_given) {
    return output;
  }
  // A forward text may end with a view, which was made without recording. Nothing else has its memory.
  at::Tensor result = output.is_view() ? alias_of(output) : output;
  if (function_->is_recorded) {
    strides_.push_back(output.strides().vec());
  }
  if (function_->returns_of_blocks) {
    const auto [found, is_new] = own.try_emplace(output.unsafeGetTensorImpl());
    if (!is_new) {
      return found->second;  // the gradient comes in the slot of the first
    }
    result = found->second = own_tensor(output);
  }
  if (depends) {
    impl::set_gradient_edge(result, {shared_from_this(), slot});
  }
  return result;
}

void BackwardNode::connect_intermediates(torch::jit::Stack& stack, size_t first) {
  has_intermediates_node_ = true;
  const std::shared_ptr<IntermediatesNode> node(
      new IntermediatesNode(std::static_pointer_cast<BackwardNode>(shared_from_this())), torch::autograd::deleteNode);
  for (const size_t number : function_->signature.differentiable_intermediates) {
    stack[first + number] = with_tensors(intermediates_[number], [&](const at::Tensor& tensor) {
      at::Tensor connected = tensor.detach();
      impl::set_gradient_edge(connected, {node, node->add_input_metadata(tensor)});
      return connected;
    });
  }
}

void BackwardNode::check_versions() const {
  size_t next = 0;
  for (const c10::IValue& intermediate : intermediates_) {
    if (!intermediate.isList()) {
      continue;
    }
    for_each_tensor(intermediate, [&](const at::Tensor& tensor) {
      const int64_t saved = versions_[next++];
      TORCH_CHECK(static_cast<int64_t>(tensor._version()) == saved, message_of_version(tensor, name(), saved));
    });
  }
}

bool BackwardNode::is_needed(size_t number, const Incoming& incoming) const {
  const std::vector<bool>& paths = incoming.saved_paths[number];
  const size_t inputs = num_outputs();
  for (size_t gradient = 0; gradient < incoming.is_defined.size(); ++gradient) {
    for (size_t input = 0; incoming.is_defined[gradient] && input < inputs; ++input) {
      if (next_edge(input).is_valid() && paths[gradient * inputs + input]) {
        return true;
      }
    }
  }
  return false;
}

// Returns a saved value. Its version counts only if it takes a gradient to an input that needs one: eager execution does
// not visit other operators, or has saved nothing for them.
c10::IValue BackwardNode::unpack(const Saved& saved, size_t number, const Incoming& incoming, bool is_output) {
  if (!saved.is_tensor) {
    return saved.value;
  }
  const auto data = saved.tensor.get_raw_data();
  if (data && data->_version() != saved.version && !is_needed(number, incoming)) {
    return data->detach();
  }
  return saved.tensor.unpack(is_output ? shared_from_this() : nullptr);
}

// Returns whether a backward before has freed what backward of the output reads. Requires the lock.
bool BackwardNode::is_lost(size_t output) const {
  bool is_lost = false;
  for (size_t other = 0; other < freed_.size(); ++other) {
    is_lost = is_lost || (freed_[other] && (other == output || function_->shares[output][other]));
  }
  return is_lost;
}

// Raises if a backward before has freed what this one reads. Requires the lock.
void BackwardNode::check_is_kept(const std::vector<bool>& is_defined) const {
  for (size_t output = 0; output < is_defined.size(); ++output) {
    TORCH_CHECK(!is_defined[output] || !is_lost(output), torch::autograd::ERR_BACKWARD_TWICE);
  }
}

// Returns whether backward frees a tensor. If not, it may run again, as in eager execution. Requires the lock.
bool BackwardNode::frees_tensors() const {
  const std::vector<bool> all(function_->signature.outputs.size(), true);
  const Incoming incoming{all, function_->backward->all_defined_paths()};
  for (size_t number = 0; number < inputs_.size() + outputs_.size(); ++number) {
    const Saved& saved = number < inputs_.size() ? inputs_[number] : outputs_[number - inputs_.size()];
    if (saved.is_tensor && is_needed(number, incoming)) {
      return true;
    }
  }
  bool holds_tensors = false;
  for (const c10::IValue& intermediate : intermediates_) {
    for_each_tensor(intermediate, [&](const at::Tensor& tensor) { holds_tensors = holds_tensors || tensor.defined(); });
  }
  return holds_tensors;
}

void BackwardNode::push_saved(torch::jit::Stack& stack, const Incoming& incoming, bool records) {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t number = 0;
  for (const Saved& input : inputs_) {
    stack.push_back(unpack(input, number++, incoming, /*is_output=*/false));
  }
  for (const Saved& output : outputs_) {
    stack.push_back(unpack(output, number++, incoming, /*is_output=*/true));
  }
  check_versions();
  const size_t first = stack.size();
  stack.insert(stack.end(), intermediates_.begin(), intermediates_.end());
  if (records && !function_->signature.differentiable_intermediates.empty()) {
    connect_intermediates(stack, first);
  }
  if (releases_) {
    drop(incoming.is_defined);
  }
}

// Notes that backward of the outputs has run for the last time. Frees the saved values with the last output that read them,
// unless a backward of backward may come through its node of intermediates. Requires the lock.
void BackwardNode::drop(const std::vector<bool>& is_defined) {
  if (!frees_tensors()) {
    return;
  }
  const size_t outputs = function_->signature.outputs.size();
  bool is_kept = false;
  freed_.resize(outputs);
  for (size_t output = 0; output < outputs; ++output) {
    freed_[output] = freed_[output] || is_defined[output];
  }
  for (size_t output = 0; output < outputs; ++output) {
    is_kept = is_kept || !is_lost(output);
  }
  if (is_kept || has_intermediates_node_) {
    return;
  }
  for (std::vector<Saved>* saved : {&inputs_, &outputs_}) {
    for (Saved& each : *saved) {
      each.tensor.reset_data();
      each.value = {};
    }
  }
  std::ranges::fill(intermediates_, c10::IValue());
  before_.reset();
}

std::vector<c10::IValue> BackwardNode::saved_values() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<c10::IValue> values;
  for (const std::vector<Saved>* saved : {&inputs_, &outputs_}) {
    for (const Saved& each : *saved) {
      values.push_back(each.is_tensor ? c10::IValue(each.tensor.get_raw_data().value_or(at::Tensor())) : each.value);
    }
  }
  values.insert(values.end(), intermediates_.begin(), intermediates_.end());
  return values;
}

void BackwardNode::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!releases_) {  // otherwise `run` has freed what its gradients ran through
    drop(std::vector<bool>(function_->signature.outputs.size(), true));
  }
}

variable_list BackwardNode::apply(variable_list&& gradients) {
  TORCH_CHECK(function_->why_no_backward.empty(), function_->why_no_backward);
  return run(std::move(gradients), {});
}

void BackwardNode::fit_strides(at::Tensor& gradient, size_t output) const {
  if (function_->is_recorded && gradient.defined() && gradient.strides() != at::IntArrayRef(strides_[output])) {
    gradient = at::empty_strided(gradient.sizes(), strides_[output], gradient.options()).copy_(gradient);
  }
}

variable_list BackwardNode::run_operators(const variable_list& gradients, const std::vector<bool>& is_defined) {
  const std::shared_ptr<const OperandsBefore> before = operands_before();
  TORCH_CHECK(before != nullptr, torch::autograd::ERR_BACKWARD_TWICE);  // another thread's backward has freed it
  torch::jit::Stack checked;
  push_saved(checked, {is_defined, function_->backward->all_defined_paths()}, /*records=*/false);
  return function_->operators->run(*before, gradients, wanted_gradients());
}

std::shared_ptr<const OperandsBefore> BackwardNode::operands_before() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return before_;
}

std::vector<size_t> BackwardNode::wanted_gradients() const {
  std::vector<size_t> wanted;
  for (size_t i = 0; i < num_outputs(); ++i) {
    if (task_should_compute_output(i)) {
      wanted.push_back(i);
    }
  }
  return wanted;
}

variable_list IntermediatesNode::apply(variable_list&& gradients) {
  return run_->run(variable_list(run_->num_inputs()), std::move(gradients));
}

variable_list BackwardNode::run(variable_list&& gradients, variable_list&& of_intermediates) {
  // Plans take gradients of the dtypes that forward had. A backward within an autocast region computes in these, too.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const DifferentiableFunction& function = *function_;
  const GradientSignature& signature = function.signature;
  const size_t outputs = signature.outputs.size();
  const size_t inputs = signature.inputs.size();
  const bool comes_from_outputs = of_intermediates.empty();
  const bool records = c10::GradMode::is_enabled() || has_defined(of_intermediates);
  if (!has_defined(gradients) && !has_defined(of_intermediates)) {
    return variable_list(inputs);
  }
  // An input has no gradient if no output with a gradient depends on it.
  std::vector<bool> is_reached(inputs, has_defined(of_intermediates));
  std::vector<bool> is_defined(outputs);
  BackwardForm form{std::vector<Definedness>(outputs), records};
  for (size_t i = 0; i < outputs; ++i) {
    const auto first = gradients.begin() + static_cast<std::ptrdiff_t>(first_slots_[i]);
    const auto last = gradients.begin() + static_cast<std::ptrdiff_t>(first_slots_[i + 1]);
    const auto defined = std::count_if(first, last, [](const at::Tensor& gradient) { return gradient.defined(); });
    is_defined[i] = defined > 0;
    form.gradients[i] = defined == last - first ? Definedness::kAll : defined == 0 ? Definedness::kNone : Definedness::kSome;
    for (size_t input = 0; input < inputs; ++input) {
      is_reached[input] = is_reached[input] || (is_defined[i] && signature.outputs[i].reaches[input]);
    }
  }
  if (const std::lock_guard<std::mutex> lock(mutex_); comes_from_outputs) {
    check_is_kept(is_defined);
  }
  const bool runs_operators = function.operators != nullptr && records;
  const BackwardPlan* plan = runs_operators ? nullptr : function.backward->at(form);
  variable_list results = plan == nullptr
                              ? run_operators(gradients, is_defined)
                              : run_plan_of_form(*plan, std::move(gradients), std::move(of_intermediates), is_defined);
  for (size_t i = 0; i < inputs; ++i) {
    if (!is_reached[i] || !next_edge(i).is_valid()) {
      results[i] = at::Tensor();
    }
  }
  return results;
}

variable_list BackwardNode::run_plan_of_form(const BackwardPlan& plan, variable_list&& gradients,
                                             variable_list&& of_intermediates, std::vector<bool> is_defined) {
  const DifferentiableFunction& function = *function_;
  torch::jit::Stack stack;
  for (size_t i = 0; i < function.signature.outputs.size(); ++i) {
    at::Tensor* const first = gradients.data() + first_slots_[i];
    if (function.is_list[i]) {
      stack.emplace_back(c10::List<at::Tensor>(at::ArrayRef<at::Tensor>(first, first_slots_[i + 1] - first_slots_[i])));
    } else {
      fit_strides(*first, i);
      stack.emplace_back(std::move(*first));
    }
  }
  const bool comes_from_outputs = of_intermediates.empty();
  if (c10::GradMode::is_enabled() || has_defined(of_intermediates)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    size_t next = 0;
    for (const size_t number : function.signature.differentiable_intermediates) {
      bool has_gradient = false;
      stack.push_back(with_tensors(intermediates_[number], [&](const at::Tensor&) {
        at::Tensor gradient = comes_from_outputs ? at::Tensor() : std::move(of_intermediates[next++]);
        has_gradient = has_gradient || gradient.defined();
        return gradient;
      }));
      is_defined.push_back(has_gradient);
    }
  }
  const std::vector<c10::IValue>& reads = function.backward_reads;
  const variable_list given = reads.empty() ? variable_list() : gradients_on(stack);
  const std::shared_ptr<const OperandsBefore> before = reads.empty() ? nullptr : operands_before();
  push_saved(stack, {is_defined, plan.saved_paths}, c10::GradMode::is_enabled());
  plan.run(stack);
  if (!std::equal(reads.begin(), reads.end(), stack.end() - static_cast<std::ptrdiff_t>(reads.size()), is_same_number)) {
    ++function.misses;
    return function.operators->run(*before, given, wanted_gradients());
  }
  variable_list results;
  for (size_t i = 0; i < num_outputs(); ++i) {
    results.push_back(std::move(stack[i]).toTensor());
  }
  return results;
}

}  // namespace sconce
