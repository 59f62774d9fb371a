// Operators with one weight for each channel: tensors of one dimension that stand along dimension 1 of the input.
#pragma once

#include "fusion/program/rule_arguments.h"
#include "ir/graph.h"

#include <optional>

namespace sconce {

// Returns whether the operator's argument `index` has one element for each channel of its first argument.
bool is_of_channels(const Op& op, size_t index);

// batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled), unless it trains.
std::optional<Element> write_batch_norm(RuleArguments& args);

}  // namespace sconce
