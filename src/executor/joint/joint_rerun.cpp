// JointNode runs forward again, by its operators and with a history.
#include "base/cpu_generator.h"
#include "executor/joint/joint_node.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace sconce {

using torch::autograd::variable_list;

const Plan& JointPlans::with_autograd() const {
  std::call_once(is_lowered_, [this] {
    plan_with_autograd_ = lower(operators).value_or_throw("sconce cannot differentiate " + name + " twice");
    plan_with_autograd_->set_name(name);
  });
  return *plan_with_autograd_;
}

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
    if (!is_written) {
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
  variable_list results(plans_->differentiable_results.size());
  for (const size_t number : plans_->cut) {
    results[number] = stack[plans_->differentiable_results[number]].toTensor().detach();
    if (const std::shared_ptr<Node> node = nodes_[number].lock()) {
      torch::autograd::impl::set_gradient_edge(results[number], {node, 0});
    } else {
      results[number].requires_grad_();  // nobody has the caller's tensor any more
    }
  }
  return results;
}

JointNode::Rerun JointNode::run_again(const std::vector<bool>& is_defined) {
  std::vector<at::Tensor> tensors = tensors_before(is_defined);
  Rerun rerun;
  if (!plans_->cut.empty()) {
    rerun.read = results_to_read(tensors);
  }
  const c10::AutoGradMode with_history(true);
  // The history of one tensor may lead to another: gradients are those of the call alone.
  for (const size_t position : plans_->differentiable_tensors) {
    tensors[position] = at::alias(tensors[position]);
    rerun.tensors.push_back(tensors[position]);
  }
  for (const size_t number : plans_->cut) {
    rerun.read[number] = at::alias(rerun.read[number]);
    tensors.push_back(rerun.read[number]);
  }
  torch::jit::Stack stack(symbols_.begin(), symbols_.end());
  stack.insert(stack.end(), tensors.begin(), tensors.end());
  {
    const DrawsAgain draws(random_state_);
    run_plan(plans_->with_autograd(), stack, AutogradUse::kAll);
  }
  for (const size_t position : plans_->differentiable_results) {
    rerun.results.push_back(stack[position].toTensor());
  }
  return rerun;
}

variable_list JointNode::flows_below(const Rerun& rerun, size_t result, const at::Tensor& gradient) const {
  variable_list below;
  for (const size_t other : plans_->below[result]) {
    below.push_back(rerun.read[other]);
  }
  variable_list found = torch::autograd::grad({rerun.results[result]}, below, {gradient}, /*retain_graph=*/true,
                                              /*create_graph=*/c10::GradMode::is_enabled(), /*allow_unused=*/true);
  variable_list flows(rerun.results.size());
  for (size_t i = 0; i < found.size(); ++i) {
    flows[plans_->below[result][i]] = std::move(found[i]);
  }
  return flows;
}

variable_list JointNode::gradients_of_tensors(const Rerun& rerun, const variable_list& gradients) const {
  variable_list results;
  variable_list given;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) {
      results.push_back(rerun.results[i]);
      given.push_back(gradients[i]);
    }
  }
  variable_list inputs;
  std::vector<size_t> numbers;  // of the tensors of which a gradient is asked for
  for (size_t i = 0; i < rerun.tensors.size(); ++i) {
    if (next_edges().empty() || task_should_compute_output(i)) {
      inputs.push_back(rerun.tensors[i]);
      numbers.push_back(i);
    }
  }
  const variable_list found = torch::autograd::grad(results, inputs, given, /*retain_graph=*/true,
                                                    /*create_graph=*/c10::GradMode::is_enabled(), /*allow_unused=*/true);
  variable_list all(rerun.tensors.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    all[numbers[i]] = found[i];
  }
  return all;
}

variable_list JointNode::run_differentiably(const variable_list& gradients, const std::vector<bool>& is_defined) {
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
  return gradients_of_tensors(rerun, sums);
}

variable_list JointNode::gradients_of_results(size_t result, const at::Tensor& gradient) {
  std::vector<bool> is_defined(plans_->differentiable_results.size(), false);
  is_defined[result] = true;
  return flows_below(run_again(is_defined), result, gradient);
}

variable_list JointNode::run_between_results(const variable_list& gradients) {
  return gradients_of_tensors(run_again(are_defined(gradients)), gradients);
}

}  // namespace sconce
