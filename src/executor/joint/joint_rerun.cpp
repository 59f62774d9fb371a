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
  std::vector<at::Tensor> tensors = tensors_before(is_defined);
  const DrawsAgain draws(random_state_);
  const Rerun rerun(*plans_, torch::jit::Stack(symbols_.begin(), symbols_.end()), std::move(tensors));
  return rerun.gradients(gradients, wanted_gradients());
}

}  // namespace sconce
