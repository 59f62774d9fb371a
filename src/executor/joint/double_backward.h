// DoubleBackward: a backward whose gradients have a history, as a call that is recorded.
#pragma once

#include "executor/joint/joint_calls.h"

#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <vector>

namespace sconce {

// Forward of a recorded call, run again by its operators on tensors of a history of their own.
struct Rerun {
  // Runs forward. `tensors`: as they were before the call. Each that is differentiable gets a history of its own, so that
  // gradients are those of this call alone.
  Rerun(const JointPlans& plans, torch::jit::Stack symbols, std::vector<at::Tensor> tensors);

  // Returns the gradients of the differentiable tensors, of which `wanted` are computed. `incoming`: of results, of which
  // some may be undefined.
  torch::autograd::variable_list gradients(const torch::autograd::variable_list& incoming,
                                           const std::vector<size_t>& wanted) const;

  torch::autograd::variable_list tensors;  // differentiable ones
  torch::autograd::variable_list results;  // differentiable ones
};

// Backward of a recorded call under `create_graph`: from tensors and gradients of results to gradients of tensors. Runs
// forward again and lets autograd differentiate, until calls of its kind have been recorded with a backward of their own.
// Thread-safe.
class DoubleBackward {
 public:
  // `plans` outlives this, and draws no random numbers.
  DoubleBackward(const JointPlans& plans, const Options& options);

  // Requires grad mode. Returns the gradients of the differentiable tensors, of which `wanted` are computed. `tensors`: as
  // they were before the call. `incoming`: of the differentiable results, of which some may be undefined.
  torch::autograd::variable_list run(const std::vector<at::Tensor>& tensors, const torch::autograd::variable_list& incoming,
                                     const std::vector<size_t>& wanted);

  void wait_for_compiles() const { calls_.wait_for_compiles(); }
  void explain(std::vector<Explanation>& plans) const;

 private:
  void run_by_operators(torch::jit::Stack& stack) const;

  const JointPlans& plans_;
  JointCalls calls_;
};

}  // namespace sconce
