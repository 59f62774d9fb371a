// The gradients that CASES files define.
#pragma once

#include "tools/sconce/values/value_walk.h"

#include <optional>
#include <vector>

namespace sconce::cli {

// Returns the floating (not complex) tensors of a result that require grad, depth first. Does not enter script objects.
std::vector<at::Tensor> differentiable_tensors(const c10::IValue& output);

// Returns the sum over the tensors of mean(o * o), or of sum(o). Nothing if there is no tensor.
std::optional<at::Tensor> mean_square_loss(const std::vector<at::Tensor>& outputs);
std::optional<at::Tensor> sum_loss(const std::vector<at::Tensor>& outputs);

// Returns d loss / d wanted, zeros for unused tensors. Throws what autograd throws.
std::vector<at::Tensor> gradients(const at::Tensor& loss, const std::vector<at::Tensor>& wanted);

}  // namespace sconce::cli
