// Sizes of results, from what an operator's meta kernel makes of other sizes.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

#include <optional>
#include <vector>

namespace sconce {

// Most operators have no shape function, but compute each size of a result from one or two sizes of their operands. Runs
// the operator on meta tensors several times, with distinct primes for the symbols, in different orders, and takes the
// expression that gives the result's size in each run:
//
//   linalg_cross of [n, 3] and [n, 3]    n = 101: [101, 3], n = 661: [661, 3], n = 457: [457, 3]    →  [n, 3]
//
// An expression is a number, a size or integer among the operands, one of these plus a number, or a product of two.
// Minimums, maximums and quotients agree with none of them. Returns nothing if an operand is not known apart from symbols
// that cannot be 1, or if a run raises. Dims that agree with no expression are unknown.
std::optional<std::vector<std::vector<Dim>>> probe_sizes(const Node& node, const AbstractValues& operands,
                                                         SizeArithmetic& arithmetic);

}  // namespace sconce
