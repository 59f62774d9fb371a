// The gradients that CASES files speak of.
#pragma once

#include "tools/sconce/values/value_walk.h"

#include <optional>
#include <vector>

namespace sconce::cli {

// The floating (not complex) tensors of a result that require grad, depth first; objects of script classes are not
// entered.
std::vector<at::Tensor> differentiable_tensors(const c10::IValue& output);

// Sum over the tensors of mean(o * o), or of sum(o). Nothing when there is no tensor.
std::optional<at::Tensor> mean_square_loss(const std::vector<at::Tensor>& outputs);
std::optional<at::Tensor> sum_loss(const std::vector<at::Tensor>& outputs);

// d loss / d wanted, zeros where a tensor takes no part. Throws what autograd throws.
std::vector<at::Tensor> gradients(const at::Tensor& loss, const std::vector<at::Tensor>& wanted);

}  // namespace sconce::cli
