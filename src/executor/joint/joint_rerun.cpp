// JointNode runs forward again, by its operators and with a history.
#include "base/cpu_generator.h"
#include "executor/joint/joint_node.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ops/alias.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

namespace sconce {

using torch::autograd::variable_list;

namespace {

// Hooks that a backward of backward does not call.
class HooksForNow {
 public:
  HooksForNow() = default;
  HooksForNow(const HooksForNow&) = delete;
  HooksForNow& operator=(const HooksForNow&) = delete;
  ~HooksForNow() {
    for (const auto& [tensor, number] : hooks_) {
      tensor.remove_hook(number);
    }
  }
  template <typename Hook>
  void add(const at::Tensor& tensor, Hook hook) {
    hooks_.emplace_back(tensor, tensor.register_hook(std::move(hook)));
  }

 private:
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
};

}  // namespace

const Plan& JointPlans::with_autograd() const {
  std::call_once(is_lowered_, [this] {
    plan_with_autograd_ = lower(operators).value_or_throw("sconce cannot differentiate " + name + " twice");
    plan_with_autograd_->set_name(name);
  });
  return *plan_with_autograd_;
}

JointNode::Rerun JointNode::run_again(const std::vector<bool>& is_defined) {
  const c10::AutoGradMode with_history(true);
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
  Rerun rerun;
  // The history of one tensor may lead to another: gradients are those of the call alone.
  for (const size_t position : plans_->differentiable_tensors) {
    tensors[position] = at::alias(tensors[position]);
    rerun.tensors.push_back(tensors[position]);
  }
  torch::jit::Stack stack(symbols_.begin(), symbols_.end());
  stack.insert(stack.end(), tensors.begin(), tensors.end());
  {
    const at::Tensor state = random_state_.defined() ? cpu_generator().get_state() : at::Tensor();
    const auto restore = c10::make_scope_exit([&state] {
      if (state.defined()) {
        cpu_generator().set_state(state);
      }
    });
    if (random_state_.defined()) {
      cpu_generator().set_state(random_state_);
    }
    run_plan(plans_->with_autograd(), stack, AutogradUse::kAll);
  }
  for (const size_t position : plans_->differentiable_results) {
    rerun.results.push_back(stack[position].toTensor());
  }
  return rerun;
}

variable_list JointNode::gradients_of_tensors(const Rerun& rerun, const variable_list& results,
                                              const variable_list& gradients, bool creates_graph) const {
  variable_list inputs;
  std::vector<size_t> numbers;  // of the tensors of which a gradient is asked for
  for (size_t i = 0; i < rerun.tensors.size(); ++i) {
    if (next_edges().empty() || task_should_compute_output(i)) {
      inputs.push_back(rerun.tensors[i]);
      numbers.push_back(i);
    }
  }
  const variable_list found =
      torch::autograd::grad(results, inputs, gradients, /*retain_graph=*/true, creates_graph, /*allow_unused=*/true);
  variable_list all(rerun.tensors.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    all[numbers[i]] = found[i];
  }
  return all;
}

variable_list JointNode::run_differentiably(const std::vector<at::Tensor>& gradients, const std::vector<bool>& is_defined) {
  const Rerun rerun = run_again(is_defined);
  return gradients_of_tensors(rerun, rerun.results, gradients, /*creates_graph=*/true);
}

variable_list JointNode::gradients_of_results(size_t result, const at::Tensor& gradient) {
  const bool creates_graph = c10::GradMode::is_enabled();
  std::vector<bool> is_defined(plans_->differentiable_results.size(), false);
  is_defined[result] = true;
  const Rerun rerun = run_again(is_defined);
  variable_list arrived(rerun.results.size());
  variable_list below;
  HooksForNow hooks;
  for (const size_t other : plans_->below[result]) {
    below.push_back(rerun.results[other]);
    hooks.add(rerun.results[other], [&arrived, other](const at::Tensor& flows) {
      arrived[other] = flows;
      return flows.defined() ? at::zeros_like(flows) : flows;
    });
  }
  torch::autograd::grad({rerun.results[result]}, below, {gradient}, /*retain_graph=*/true, creates_graph,
                        /*allow_unused=*/true);
  return arrived;
}

variable_list JointNode::run_between_results(const variable_list& gradients) {
  const bool creates_graph = c10::GradMode::is_enabled();
  const Rerun rerun = run_again(are_defined(gradients));
  variable_list results;
  variable_list given;
  HooksForNow hooks;
  for (size_t i = 0; i < gradients.size(); ++i) {
    // The gradient that is given is the sum of all that flows to the result.
    hooks.add(rerun.results[i], [total = gradients[i]](const at::Tensor& flows) {
      return total.defined() ? total : flows.defined() ? at::zeros_like(flows) : flows;
    });
    if (gradients[i].defined()) {
      results.push_back(rerun.results[i]);
      given.push_back(gradients[i]);
    }
  }
  return gradients_of_tensors(rerun, results, given, creates_graph);
}

}  // namespace sconce
