// Operators that multiply matrices, and what may happen to the memory of their results.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <optional>

namespace sconce {

// Nothing for any other node, for those that write, and for the variants that name a dtype for the result.
std::optional<MatrixProduct> matrix_product(const Node& node);

// The constants by which a product and its addend are multiplied. Nothing if they are none, or 0 (which leaves out what is
// NaN), or would make an operator refuse such elements or give others.
struct ProductFactors {
  Value* of_product = nullptr;  // null: 1
  Value* of_addend = nullptr;
};
std::optional<ProductFactors> constant_factors(const Node& product, bool elements_are_integers);

// a + b, of two tensors, without a factor.
bool is_plain_sum(const Node& node);

// The view of a matrix with rows and columns exchanged.
bool is_transposition(const Node& node);

// Whether the node's result is a new product, laid out by its sizes alone.
bool produces_contiguous_product(const Node& node);

// Whether nobody can tell, but by rounding, that the rows of the result lie further apart than they are long: no strides of
// results behind it depend on it, and no operator refuses it. Requires that rows are of more than one element, and that the
// graph only reads the result and forgets it (is_read_only_and_local).
bool may_have_rows_apart(const Value& result);

}  // namespace sconce
