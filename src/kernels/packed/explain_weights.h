// Where the weights of a method are.
#pragma once

#include <sconce/explanation.h>

#include <ATen/core/Tensor.h>

#include <vector>

namespace sconce {

// `weights`: all of them, in any order, perhaps several times.
WeightsExplanation explain_weights(const std::vector<at::Tensor>& weights);

}  // namespace sconce
