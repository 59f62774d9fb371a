// UpdatePlan: the plan that updates all parameters of a group, one after the other.
#pragma once

#include "plan/plan.h"
#include "training/update_rule.h"

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <ATen/core/List.h>
#include <ATen/core/stack.h>

#include <memory>
#include <vector>

namespace sconce {

// Its graph is a loop over lists, so that one plan serves any number of parameters.
class UpdatePlan {
 public:
  UpdatePlan(const UpdateRule& rule, unsigned variant, const Options& options);

  const Update& update() const { return update_; }
  // Adds a parameter to those of the next run.
  void add(const at::Tensor& param, const at::Tensor& grad, const UpdateRule::StateTensors& states,
           const UpdateRule::StepNumbers& numbers);
  // Updates the parameters. Requires that gradients are off, and that the tensors are dense ones on the CPU. Throws what an
  // operator throws.
  void run(const std::vector<double>& numbers);
  // Drops the parameters.
  void clear();
  Explanation explain() const;

 private:
  const Update update_;
  Explanation compiled_;  // without the plan
  double compile_seconds_ = 0;
  std::unique_ptr<Plan> plan_;
  // The arguments of a run: an element for each parameter.
  c10::List<at::Tensor> params_;
  c10::List<at::Tensor> grads_;
  std::vector<c10::List<at::Tensor>> states_;    // in the order of Update::states
  std::vector<c10::List<double>> step_numbers_;  // in the order of Update::step_numbers
  torch::jit::Stack stack_;
};

}  // namespace sconce
