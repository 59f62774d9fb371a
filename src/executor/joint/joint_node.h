// JointNode: the autograd node that a call by a joint recording records.
#pragma once

#include "executor/joint/joint_plans.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// Runs the backward plan of one call, or of a part of it. Autograd inputs: one per differentiable result, none of which is
// computed from another. Autograd outputs: one per differentiable tensor. Tensors that backward reads carry autograd's
// version checks. Engine threads may call it at once.
class JointNode final : public torch::autograd::Node {
 public:
  // Runs forward on the tensors, and returns the results with their history. Returns nothing if forward reads other numbers
  // than when it was recorded: then only what it writes and draws has happened.
  static std::optional<std::vector<at::Tensor>> run(std::shared_ptr<const JointPlans> plans,
                                                    const std::vector<int64_t>& symbols, std::vector<at::Tensor> tensors);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return plans_->name; }
  void release_variables() override;
  void will_release_variables() override { releases_ = true; }

 private:
  explicit JointNode(std::shared_ptr<const JointPlans> plans) : plans_(std::move(plans)) {}

  static std::vector<bool> are_defined(const torch::autograd::variable_list& tensors);

  void connect_inputs();
  // Returns false if forward reads other numbers than when it was recorded.
  bool run_forward(torch::jit::Stack& stack) const;
  std::vector<at::Tensor> connect_results(torch::jit::Stack& results);
  void connect(const std::vector<at::Tensor>& differentiable);
  // Both require the lock.
  void check_is_kept(const std::vector<bool>& is_defined) const;
  void release(const std::vector<bool>& is_defined);
  void check_version(const at::Tensor& tensor, int64_t saved) const;
  // Returns whether a backward with these gradients reads what is saved, by its number among tensors and then results.
  bool is_needed(size_t saved, const std::vector<bool>& is_defined) const;
  // Returns the gradients as backward was recorded with: defined, and with the strides of the results.
  std::vector<at::Tensor> as_recorded(torch::autograd::variable_list&& gradients) const;
  torch::autograd::variable_list run_plan_of_backward(const std::vector<at::Tensor>& gradients,
                                                      const std::vector<bool>& is_defined, bool releases);
  // The same by operators: in grad mode, with a history. `gradients`: as the engine brings them.
  bool mixes_zeros(const std::vector<bool>& is_defined) const;
  torch::autograd::variable_list run_with_zeros(const torch::autograd::variable_list& gradients,
                                                const std::vector<bool>& is_defined, bool releases);
  torch::autograd::variable_list run_differentiably(const torch::autograd::variable_list& gradients,
                                                    const std::vector<bool>& is_defined);
  // Checks versions. Returns the tensors of the call, as they were before it.
  std::vector<at::Tensor> tensors_before(const std::vector<bool>& is_defined);
  // Returns the differentiable tensors of which the engine takes a gradient.
  std::vector<size_t> wanted_gradients() const;

  const std::shared_ptr<const JointPlans> plans_;
  std::vector<std::vector<int64_t>> strides_;  // of differentiable results
  at::Tensor random_state_;                    // before the run, if it draws random numbers
  std::vector<at::Tensor> written_;            // what tensors were before the run that writes them
  std::mutex mutex_;                           // guards what follows
  std::vector<int64_t> symbols_;
  std::vector<at::Tensor> tensors_;
  std::vector<int64_t> versions_;  // of the tensors before the run
  std::vector<at::Tensor> saved_results_;
  std::vector<int64_t> result_versions_;
  std::vector<c10::IValue> kept_;
  std::vector<bool> is_freed_;  // per differentiable result: a backward that frees has come from it
  bool releases_ = false;       // the values are not needed after this backward
};

}  // namespace sconce
