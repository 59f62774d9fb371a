#include "trace/tensor_state.h"

#include "base/storage_of.h"
#include "trace/tracer.h"
#include "trace/tracing_conditions.h"

#include <ATen/NamedTensorUtils.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string_view>

namespace sconce {
namespace {

namespace impl = torch::autograd::impl;

size_t hooks_of(const at::Tensor& tensor) {
  size_t hooks = count_hooks(impl::hooks(tensor)) + (impl::post_acc_grad_hooks(tensor) != nullptr ? 1 : 0);
  if (const std::shared_ptr<torch::autograd::Node> accumulator = impl::try_get_grad_accumulator(tensor)) {
    hooks += accumulator->pre_hooks().size() + accumulator->post_hooks().size();
  }
  return hooks;
}

}  // namespace

TensorState::State TensorState::state_of(const at::Tensor& tensor) {
  State state;
  const at::Tensor real = real_of(tensor);  // symbolic sizes would be pinned
  state.storage = storage_of(real);
  state.dtype = real.scalar_type();
  state.has_bits = real.is_conj() || real.is_neg();
  if (real.layout() == c10::kStrided) {
    state.offset = real.storage_offset();
    state.sizes_and_strides.append(real.sizes().begin(), real.sizes().end());
    state.sizes_and_strides.append(real.strides().begin(), real.strides().end());
  }
  if (real.has_names()) {
    for (const at::Dimname& name : real.names()) {
      state.names.emplace_back(name.symbol().toUnqualString());
    }
  }
  if (tensor.is_inference()) {
    return state;  // autograd keeps nothing
  }
  state.requires_grad = tensor.requires_grad();
  state.is_leaf = tensor.is_leaf();
  // A view made without gradients and written since has no history: to ask for it raises.
  const auto* view = impl::get_view_autograd_meta(tensor);
  if (view == nullptr || view->get_creation_meta() == torch::autograd::CreationMeta::DEFAULT) {
    state.node = tensor.grad_fn();
  }
  if (state.is_leaf && tensor.grad().defined()) {
    state.gradient = tensor.grad();
    state.gradient_version = tensor.grad().is_inference() ? 0 : tensor.grad()._version();
  }
  if (impl::get_autograd_meta(tensor) != nullptr) {
    state.hooks = hooks_of(tensor);
    state.retains_gradient = tensor.retains_grad();
  }
  return state;
}

TensorState::TensorState(const at::Tensor& tensor) : tensor_(tensor), before_(state_of(tensor)) {}

const char* TensorState::change() const {
  const State now = state_of(tensor_);
  if (now.storage != before_.storage || now.dtype != before_.dtype) {
    return "replaces the memory of";
  }
  if (now.offset != before_.offset || now.sizes_and_strides != before_.sizes_and_strides) {
    return "changes the sizes or strides of";
  }
  if (now.has_bits != before_.has_bits) {
    return "changes the conjugate or negative bit of";
  }
  if (now.names != before_.names) {
    return "names the dimensions of";
  }
  if (!now.gradient.is_same(before_.gradient) || now.gradient_version != before_.gradient_version) {
    return "changes the gradient of";
  }
  if (now.hooks != before_.hooks) {
    return "registers a hook on";
  }
  if (now.retains_gradient != before_.retains_gradient) {
    return "retains the gradient of";
  }
  if (before_.requires_grad && (!now.requires_grad || (now.is_leaf && !before_.is_leaf))) {
    return "detaches";
  }
  if (now.is_leaf != before_.is_leaf || now.node != before_.node) {
    return "changes the history of";
  }
  return now.requires_grad != before_.requires_grad ? "requires a gradient of" : nullptr;
}

bool TensorState::is_marked() const {
  return !before_.requires_grad && tensor_.is_leaf() && tensor_.requires_grad() &&
         std::string_view(change()) == "requires a gradient of";
}

TensorStates::TensorStates(std::span<const at::Tensor> arguments, std::span<const at::Tensor> attributes)
    : arguments_(arguments.begin(), arguments.end()), attributes_(attributes.begin(), attributes.end()) {}

std::vector<size_t> TensorStates::marked() const {
  std::vector<size_t> numbers;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (arguments_[i].is_marked()) {
      numbers.push_back(i);
    }
  }
  return numbers;
}

std::string TensorStates::refusal() const {
  for (const TensorState& argument : arguments_) {
    const char* change = argument.change();
    if (change != nullptr && !argument.is_marked()) {
      return std::string("it ") + change + " an argument";
    }
  }
  for (const TensorState& attribute : attributes_) {
    if (const char* change = attribute.change()) {
      return std::string("it ") + change + " a tensor of the module";
    }
  }
  return {};
}

}  // namespace sconce
