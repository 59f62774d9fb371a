#include "executor/joint/joint_node.h"

#include "base/cpu_generator.h"
#include "base/storage_of.h"
#include "plan/autograd/alias_of.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/sum.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <bit>
#include <exception>
#include <utility>

namespace sconce {

namespace impl = torch::autograd::impl;
using torch::autograd::variable_list;

namespace {

// Returns what is the caller's alone: a copy if backward keeps something else in its memory.
at::Tensor own_tensor(const at::Tensor& tensor) {
  if (storage_of(tensor) != nullptr && tensor.storage().use_count() > 1) {
    return tensor.clone();
  }
  return tensor.is_view() ? alias_of(tensor) : tensor;
}

// NaN is the same as NaN, and 0 is not -0: what was computed from a number is in the recording.
bool is_same_number(const c10::IValue& a, const c10::IValue& b) {
  const auto bits = [](const c10::IValue& value) { return std::bit_cast<uint64_t>(value.toDouble()); };
  return a.isDouble() && b.isDouble() ? bits(a) == bits(b) : a.tagKind() == b.tagKind() && a == b;
}

bool has_defined(const variable_list& tensors) {
  return std::ranges::any_of(tensors, [](const at::Tensor& tensor) { return tensor.defined(); });
}

}  // namespace

std::optional<std::vector<at::Tensor>> JointNode::run(std::shared_ptr<const JointPlans> plans,
                                                      const std::vector<int64_t>& symbols, std::vector<at::Tensor> tensors) {
  const std::shared_ptr<JointNode> node(new JointNode(std::move(plans)), torch::autograd::deleteNode);
  node->symbols_ = symbols;
  node->tensors_ = std::move(tensors);
  node->connect_inputs();
  torch::jit::Stack stack(symbols.begin(), symbols.end());
  stack.insert(stack.end(), node->tensors_.begin(), node->tensors_.end());
  if (!node->run_forward(stack)) {
    return std::nullopt;
  }
  for (const size_t position : node->plans_->marked) {
    node->tensors_[position].requires_grad_();
  }
  return node->connect_results(stack);
}

bool JointNode::run_forward(torch::jit::Stack& stack) const {
  plans_->forward->run(stack);
  const auto first = stack.begin() + static_cast<std::ptrdiff_t>(plans_->results);
  if (!std::equal(plans_->reads.begin(), plans_->reads.end(), first, is_same_number)) {
    return false;
  }
  stack.erase(first, first + static_cast<std::ptrdiff_t>(plans_->reads.size()));
  return true;
}

void JointNode::connect_inputs() {
  for (const at::Tensor& tensor : tensors_) {
    versions_.push_back(tensor._version());
  }
  if (plans_->draws) {
    const std::lock_guard lock(cpu_generator().mutex());
    random_state_ = cpu_generator().get_state();
  }
  const at::NoGradGuard no_grad;
  for (const size_t position : plans_->written) {
    written_.push_back(tensors_[position].clone());
  }
}

std::vector<at::Tensor> JointNode::connect_results(torch::jit::Stack& stack) {
  const at::NoGradGuard no_grad;
  // Tensors of one memory, such as a buffer and the parameter that it is a view of, count versions together.
  for (const size_t position : plans_->written) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (storage_of(tensors_[i]) == storage_of(tensors_[position])) {
        versions_[i] = tensors_[i]._version();
      }
    }
  }
  const auto first_kept = stack.begin() + static_cast<std::ptrdiff_t>(plans_->results);
  kept_.assign(std::make_move_iterator(first_kept), std::make_move_iterator(stack.end()));
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < plans_->results; ++i) {
    results.push_back(std::move(stack[i]).toTensor());
  }
  for (at::Tensor& result : results) {
    result = own_tensor(result);
  }
  std::vector<at::Tensor> differentiable;
  for (const size_t position : plans_->differentiable_results) {
    differentiable.push_back(results[position]);
    strides_.push_back(results[position].strides().vec());
  }
  if (differentiable.empty()) {
    return results;
  }
  connect(differentiable);
  for (const size_t position : plans_->saved_results) {
    saved_results_.push_back(alias_of(results[position]));
    result_versions_.push_back(results[position]._version());
  }
  return results;
}

void JointNode::connect(const std::vector<at::Tensor>& differentiable) {
  torch::autograd::edge_list edges;
  for (const size_t position : plans_->differentiable_tensors) {
    edges.push_back(impl::gradient_edge(tensors_[position]));
  }
  for (const at::Tensor& result : differentiable) {
    add_input_metadata(result);
  }
  set_next_edges(std::move(edges));
  for (size_t i = 0; i < differentiable.size(); ++i) {
    impl::set_gradient_edge(differentiable[i], {shared_from_this(), static_cast<uint32_t>(i)});
  }
}

std::vector<bool> JointNode::are_defined(const variable_list& tensors) {
  std::vector<bool> are(tensors.size());
  std::transform(tensors.begin(), tensors.end(), are.begin(), [](const at::Tensor& tensor) { return tensor.defined(); });
  return are;
}

void JointNode::check_version(const at::Tensor& tensor, int64_t saved) const {
  const int64_t now = tensor._version();
  TORCH_CHECK(now == saved,
              "one of the variables needed for gradient computation has been modified by an inplace operation: [",
              tensor.toString(), " ", tensor.sizes(), "], which ", name(), " has saved, is at version ", now,
              "; expected version ", saved, " instead.");
}

bool JointNode::is_needed(size_t saved, const std::vector<bool>& is_defined) const {
  for (size_t i = 0; i < is_defined.size(); ++i) {
    if (is_defined[i] && plans_->needs[i][saved]) {
      return true;
    }
  }
  return false;
}

std::vector<at::Tensor> JointNode::as_recorded(variable_list&& gradients) const {
  std::vector<at::Tensor> recorded;
  for (size_t i = 0; i < gradients.size(); ++i) {
    at::Tensor gradient = gradients[i].defined() ? std::move(gradients[i]) : input_metadata(i).zeros_like();
    if (gradient.strides() != at::IntArrayRef(strides_[i])) {
      gradient = at::empty_strided(gradient.sizes(), strides_[i], gradient.options()).copy_(gradient);
    }
    recorded.push_back(std::move(gradient));
  }
  return recorded;
}

variable_list JointNode::run_plan_of_backward(const std::vector<at::Tensor>& gradients, const std::vector<bool>& is_defined,
                                              bool releases) {
  torch::jit::Stack stack(symbols_.begin(), symbols_.end());
  stack.insert(stack.end(), gradients.begin(), gradients.end());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    check_is_kept(is_defined);
    const std::vector<size_t>& saved = plans_->saved_tensors;
    for (size_t i = 0; i < saved.size(); ++i) {
      if (is_needed(i, is_defined)) {
        check_version(tensors_[saved[i]], versions_[saved[i]]);
      }
      stack.emplace_back(tensors_[saved[i]]);
    }
    for (size_t i = 0; i < saved_results_.size(); ++i) {
      if (is_needed(saved.size() + i, is_defined)) {
        check_version(saved_results_[i], result_versions_[i]);
      }
      stack.emplace_back(saved_results_[i]);
    }
    stack.insert(stack.end(), kept_.begin(), kept_.end());
    if (releases) {
      release(is_defined);
    }
  }
  plans_->backward->run(stack);
  variable_list results;
  for (c10::IValue& value : stack) {
    results.push_back(std::move(value).toTensor());
  }
  return results;
}

// Returns whether a result without a gradient and one with a gradient depend on one tensor.
bool JointNode::mixes_zeros(const std::vector<bool>& is_defined) const {
  for (size_t input = 0; input < plans_->differentiable_tensors.size(); ++input) {
    std::array<bool, 2> is_reached = {false, false};
    for (size_t i = 0; i < is_defined.size(); ++i) {
      bool& is_so = is_reached[is_defined[i] ? 1 : 0];
      is_so = is_so || plans_->reaches[i][input];
    }
    if (is_reached[0] && is_reached[1]) {
      return true;
    }
  }
  return false;
}

// The plan takes zeros for a gradient that is undefined: with an infinite derivative they make NaN. Autograd does not visit
// what only such results are computed from, so where a gradient has NaN, autograd computes it.
variable_list JointNode::run_with_zeros(const variable_list& gradients, const std::vector<bool>& is_defined, bool releases) {
  variable_list results = run_plan_of_backward(as_recorded(variable_list(gradients)), is_defined, /*releases=*/false);
  const auto has_nan = [](const at::Tensor& result) { return result.defined() && at::isnan(at::sum(result)).item<bool>(); };
  if (std::ranges::any_of(results, has_nan)) {
    results = run_differentiably(gradients, is_defined);
  }
  if (const std::lock_guard<std::mutex> lock(mutex_); releases) {
    release(is_defined);
  }
  return results;
}

variable_list JointNode::apply(variable_list&& gradients) {
  const bool releases = releases_;
  TORCH_CHECK(plans_->why_no_backward.empty(), plans_->why_no_backward);
  if (!has_defined(gradients)) {
    return variable_list(plans_->differentiable_tensors.size());
  }
  const std::vector<bool> is_defined = are_defined(gradients);
  variable_list results = c10::GradMode::is_enabled() ? run_differentiably(gradients, is_defined)
                          : mixes_zeros(is_defined)
                              ? run_with_zeros(gradients, is_defined, releases)
                              : run_plan_of_backward(as_recorded(std::move(gradients)), is_defined, releases);
  // A tensor has no gradient if no result with a gradient depends on it.
  for (size_t input = 0; input < results.size(); ++input) {
    bool is_reached = false;
    for (size_t i = 0; i < is_defined.size(); ++i) {
      is_reached = is_reached || (is_defined[i] && plans_->reaches[i][input]);
    }
    if (!is_reached) {
      results[input] = at::Tensor();
    }
  }
  return results;
}

void JointNode::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!releases_) {  // else `apply` has freed what its gradients ran through
    release(std::vector<bool>(plans_->differentiable_results.size(), true));
  }
}

// As in eager execution, a backward frees what it has run through: results that share nothing with it may come later.
void JointNode::check_is_kept(const std::vector<bool>& is_defined) const {
  for (size_t i = 0; i < is_defined.size(); ++i) {
    for (size_t k = 0; k < is_freed_.size(); ++k) {
      TORCH_CHECK(!is_defined[i] || !is_freed_[k] || !plans_->shares[i][k], torch::autograd::ERR_BACKWARD_TWICE);
    }
  }
}

void JointNode::release(const std::vector<bool>& is_defined) {
  if (!plans_->frees_tensors) {
    return;
  }
  is_freed_.resize(is_defined.size());
  for (size_t i = 0; i < is_defined.size(); ++i) {
    is_freed_[i] = is_freed_[i] || is_defined[i];
  }
  bool is_needed = false;
  for (size_t i = 0; i < is_freed_.size(); ++i) {
    bool has_lost = false;
    for (size_t k = 0; k < is_freed_.size(); ++k) {
      has_lost = has_lost || (is_freed_[k] && plans_->shares[i][k]);
    }
    is_needed = is_needed || !has_lost;
  }
  if (!is_needed) {
    tensors_.clear();
    saved_results_.clear();
    kept_.clear();
  }
}

}  // namespace sconce
