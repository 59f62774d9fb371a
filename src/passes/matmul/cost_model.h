// Where one matrix product is faster than several. By sizes: the limits stand with the figures in what_pays.cpp.
#pragma once

#include "passes/matmul/known_matrices.h"

#include <cstdint>

namespace sconce {

enum class Side : uint8_t { kLeft, kRight };

// Products that are added up, at least two.
bool pays_to_add_at_once(const Products& terms);

// A product that has the operand on that side in common with others.
bool is_profitable_to_join(const Product& member, Side shared);

}  // namespace sconce
