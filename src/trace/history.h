// Walks over autograd's history of tensors.
#pragma once

#include <c10/util/FunctionRef.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

namespace sconce {

// Calls `visit` for each node that the history of `tensors` leads to. The walk stops at the nodes `ends`.
void for_each_in_history(const torch::autograd::variable_list& tensors, const std::vector<torch::autograd::Node*>& ends,
                         c10::function_ref<void(torch::autograd::Node&)> visit);

// Returns the leaves of the history. Some may require no gradient any longer: backward runs to those, too, and drops their
// gradients.
std::vector<at::Tensor> leaves_of(const torch::autograd::variable_list& tensors);

// While one lives, the leaves require gradients, so that autograd::grad runs wherever backward does.
class RequiredGradients {
 public:
  explicit RequiredGradients(const std::vector<at::Tensor>& leaves);
  ~RequiredGradients();
  RequiredGradients(const RequiredGradients&) = delete;
  RequiredGradients& operator=(const RequiredGradients&) = delete;

 private:
  std::vector<at::Tensor> changed_;
};

}  // namespace sconce
