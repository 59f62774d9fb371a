// JointNode: backward of backward.
#include "base/cpu_generator.h"
#include "executor/joint/double_backward.h"
#include "executor/joint/joint_node.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace sconce {

using torch::autograd::variable_list;

namespace {

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

// Adds a gradient, which may be undefined, to a sum, which may be, too.
void add_gradient(at::Tensor& sum, const at::Tensor& gradient) {
  if (gradient.defined()) {
    sum = sum.defined() ? sum + gradient : gradient;
  }
}

}  // namespace

std::vector<at::Tensor> JointNode::tensors_before(const std::vector<bool>& is_defined) {
  std::vector<at::Tensor> tensors;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    check_is_kept(is_defined);
    tensors = tensors_;
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool is_written = std::find(plans_->written.begin(), plans_->written.end(), i) != plans_->written.end();
    if (plans_->read[i] && !is_written) {
      check_version(tensors[i], versions_[i]);
    }
  }
  for (size_t i = 0; i < saved_results_.size(); ++i) {
    if (is_needed(plans_->saved_tensors.size() + i, is_defined)) {
      check_version(saved_results_[i], result_versions_[i]);
    }
  }
  for (size_t i = 0; i < written_.size(); ++i) {
    tensors[plans_->written[i]] = written_[i].clone();
  }
  return tensors;
}

// A gradient that is computed from a result leads to the caller's tensor, as in eager execution.
variable_list JointNode::results_to_read(std::vector<at::Tensor> tensors) const {
  const at::NoGradGuard no_grad;
  for (const size_t position : plans_->written) {
    tensors[position] = tensors[position].clone();
  }
  torch::jit::Stack stack(symbols_.begin(), symbols_.end());
  stack.insert(stack.end(), tensors.begin(), tensors.end());
  {
    const DrawsAgain draws(random_state_);
    plans_->forward->run(stack);
  }
  variable_list results;
  for (const size_t number : plans_->cut) {
    results.push_back(stack[plans_->differentiable_results[number]].toTensor().detach());
    if (const std::shared_ptr<Node> node = nodes_[number].lock()) {
      torch::autograd::impl::set_gradient_edge(results.back(), {node, 0});
    } else {
      results.back().requires_grad_();  // nobody has the caller's tensor any more
    }
  }
  return results;
}

Rerun JointNode::run_again(const std::vector<bool>& is_defined) {
  std::vector<at::Tensor> tensors = tensors_before(is_defined);
  if (!plans_->cut.empty()) {
    const variable_list read = results_to_read(tensors);
    tensors.insert(tensors.end(), read.begin(), read.end());
  }
  const DrawsAgain draws(random_state_);
  return {*plans_, torch::jit::Stack(symbols_.begin(), symbols_.end()), std::move(tensors)};
}

variable_list JointNode::flows_below(const Rerun& rerun, size_t result, const at::Tensor& gradient) const {
  variable_list below;
  for (const size_t other : plans_->below[result]) {
    const auto number = std::ranges::lower_bound(plans_->cut, other) - plans_->cut.begin();
    below.push_back(rerun.read[static_cast<size_t>(number)]);
  }
  variable_list found = torch::autograd::grad({rerun.results[result]}, below, {gradient}, /*retain_graph=*/true,
                                              /*create_graph=*/c10::GradMode::is_enabled(), /*allow_unused=*/true);
  variable_list flows(rerun.results.size());
  for (size_t i = 0; i < found.size(); ++i) {
    flows[plans_->below[result][i]] = std::move(found[i]);
  }
  return flows;
}

std::vector<size_t> JointNode::wanted_gradients() const {
  std::vector<size_t> wanted;
  for (size_t i = 0; i < plans_->differentiable_tensors.size(); ++i) {
    if (next_edges().empty() || task_should_compute_output(i)) {
      wanted.push_back(i);
    }
  }
  return wanted;
}

variable_list JointNode::run_differentiably(const variable_list& gradients, const std::vector<bool>& is_defined) {
  if (plans_->double_backward != nullptr && c10::GradMode::is_enabled()) {
    return plans_->double_backward->run(tensors_before(is_defined), gradients, wanted_gradients());
  }
  const Rerun rerun = run_again(is_defined);
  variable_list sums = gradients;
  for (auto result = plans_->from_lowest.rbegin(); result != plans_->from_lowest.rend(); ++result) {
    if (plans_->below[*result].empty() || !sums[*result].defined()) {
      continue;
    }
    const variable_list flows = flows_below(rerun, *result, sums[*result]);
    for (size_t i = 0; i < flows.size(); ++i) {
      add_gradient(sums[i], flows[i]);
    }
  }
  return rerun.gradients(sums, wanted_gradients());
}

variable_list JointNode::gradients_of_results(size_t result, const at::Tensor& gradient) {
  std::vector<bool> is_defined(plans_->differentiable_results.size(), false);
  is_defined[result] = true;
  return flows_below(run_again(is_defined), result, gradient);
}

variable_list JointNode::run_between_results(const variable_list& gradients) {
  return run_again(are_defined(gradients)).gradients(gradients, wanted_gradients());
}

}  // namespace sconce
