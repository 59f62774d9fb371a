// When one matrix product is faster than several, judged by sizes. product_cost.cpp has the limits and the measurements.
#pragma once

#include "passes/matmul/known_matrices.h"

#include <cstdint>

namespace sconce {

enum class Side : uint8_t { kLeft, kRight };

// Returns whether to compute a sum of products, at least two, as one product.
bool pays_to_add_at_once(const Products& terms);

// Returns whether to join a product with others that share its operand on that side.
bool is_profitable_to_join(const Product& member, Side shared);

}  // namespace sconce
