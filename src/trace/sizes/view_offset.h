// Views of tensors whose sizes are open: how large slices and parts are, and where a view begins.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"
#include "trace/sizes/symbolic_sizes.h"

#include <optional>
#include <vector>

namespace sconce {

// Returns the sizes of a slice of a tensor. How its bounds compare with the tensor's size is a guard. Nothing for another
// node, or if they cannot be derived.
std::optional<std::vector<Dim>> sizes_of_slice(const Node& node, const AbstractValues& operands, SymbolicSizes& sizes);

// Returns the sizes of part `part` of `count` that the node cuts its first operand into. Nothing for another node, or if
// they cannot be derived.
std::optional<std::vector<Dim>> sizes_of_part(const Node& node, const AbstractValues& operands, size_t part, size_t count,
                                              SizeArithmetic& arithmetic);

// Guards that the node cuts its first operand into `count` parts.
void guard_count_of_parts(const Node& node, const AbstractValues& operands, size_t count, SymbolicSizes& sizes);

// Returns the storage offset of a view that the node makes of its first operand, which begins at `base_offset`. `part`: the
// element, where the result is a list. `moves`: whether the view begins elsewhere than its base in the run that is traced.
// Unknown if it cannot be derived.
Dim view_offset(const Node& node, const AbstractValues& operands, Dim base_offset, size_t part, bool moves,
                SymbolicSizes& sizes);

}  // namespace sconce
