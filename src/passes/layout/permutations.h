// Operators that reorder the dimensions of a tensor: aten::permute, aten::transpose, aten::t.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace sconce {

bool permutes(const Node& node);

// Returns the tensor whose dimensions have the same order as the result's: the node's operand if the node changes nothing,
// or the operand of the permutation before it if the two cancel. Null if neither, or if an order is not constant. Requires
// `permutes`.
Value* permuted_back(const Node& node);

// Composes the node with the permutation before it. Element i of the result is the position of dimension i in the operand of
// the first one. Nothing if there is no such permutation, if an order is not constant, or if the rank is not known. Requires
// `permutes`.
std::optional<std::vector<size_t>> order_of_both(const Node& node);

}  // namespace sconce
