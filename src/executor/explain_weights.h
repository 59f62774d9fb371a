// The part of `explain` about the weights of a method.
#pragma once

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace sconce {

// `weights`: all of them, in any order, perhaps several times.
WeightsExplanation explain_weights(const std::vector<at::Tensor>& weights);

// Returns why the weights among a module's attributes are not packed, although the options ask for it; nothing if they are,
// or if that depends on the operators alone.
std::optional<RefusalExplanation> why_not_packed(const std::vector<at::Tensor>& attributes, const Options& options);

}  // namespace sconce
