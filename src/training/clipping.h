// Clipping: how the gradients of a step are changed before they are used.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

struct Clipping {
  std::optional<double> norm;   // of all gradients together, of order 2
  std::optional<double> value;  // of each element

  bool is_on() const { return norm || value; }
};

// Returns what torch::nn::utils::clip_grad_norm_ multiplies gradients by, computed by the same operators.
at::Tensor clip_factor(const std::vector<at::Tensor>& gradients, double max_norm);

// Returns the same as a TorchScript function of `count` gradients:
//
//   def clip_factor(grad0: Tensor, grad1: Tensor, …):
std::string clip_factor_text(size_t count, double max_norm);

}  // namespace sconce
