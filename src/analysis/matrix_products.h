// Operators that multiply matrices, and what may happen to the memory of their results.
#pragma once

#include "ir/graph.h"

#include <optional>

namespace sconce {

// Returns nothing for any other node, for nodes that write, and for variants that name a dtype for the result.
std::optional<MatrixProduct> matrix_product(const Node& node);

// The constants by which a product and its addend are multiplied. Nothing if one is not constant, is 0 (which would
// drop NaN), or would make an operator reject such elements or return others.
struct ProductFactors {
  Value* of_product = nullptr;  // null: 1
  Value* of_addend = nullptr;
};
std::optional<ProductFactors> constant_factors(const Node& product, bool elements_are_integers);

// Returns whether the node is a + b of two tensors, without a factor.
bool is_plain_sum(const Node& node);

// Returns whether the node is the view of a matrix with rows and columns exchanged.
bool is_transposition(const Node& node);

// Returns whether the node's result is a new product whose layout depends on its sizes only.
bool produces_contiguous_product(const Node& node);

// Returns whether gaps between the rows of the result are unobservable except by rounding: no strides of later
// results depend on them, and no operator rejects them. Requires rows of more than one element, and that the graph
// only reads the result (is_read_only_and_local).
bool may_have_rows_apart(const Value& result);

}  // namespace sconce
