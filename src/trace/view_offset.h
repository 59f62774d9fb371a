// view_offset: where a view begins, as an expression of the inputs' sizes.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

namespace sconce {

// Returns the storage offset of a view that the node makes of its first operand, which begins at `base_offset`. `part`: the
// element, where the result is a list. `moves`: whether the view begins elsewhere than its base in the run that is traced.
// Unknown if it cannot be derived.
Dim view_offset(const Node& node, const AbstractValues& operands, Dim base_offset, size_t part, bool moves,
                SizeArithmetic& arithmetic);

}  // namespace sconce
