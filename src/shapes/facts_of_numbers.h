// Facts of tensors that are made of lists of numbers.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"

#include <optional>

namespace sconce {

// Returns the dtype and the rank of the result of `torch.tensor` of a list, or of nested lists, whose lengths need not be
// known. Nothing for other operators and for elements of unknown type. Assumes the current default dtype.
std::optional<TensorFacts> facts_of_numbers(const Node& node, const AbstractValues& operands);

}  // namespace sconce
