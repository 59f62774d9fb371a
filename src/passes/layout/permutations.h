// Operators that give the dimensions of a tensor another order: aten::permute, aten::transpose, aten::t.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace sconce {

bool permutes(const Node& node);

// The tensor, the node's operand or that of the permutation before it, whose dimensions stand in the result as they stand in
// it; null where there is none, or where an order is no constant. Requires `permutes`.
Value* permuted_back(const Node& node);

// What the node and the permutation before it do together: of each dimension of the result, the position in the operand of
// the first. Nothing where there is no such permutation, where an order is no constant, or the rank not known. Requires
// `permutes`.
std::optional<std::vector<size_t>> order_of_both(const Node& node);

}  // namespace sconce
