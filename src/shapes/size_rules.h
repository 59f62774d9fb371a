// Queries of sizes and casts, and sizes of results for which there is no shape function.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

#include <optional>
#include <vector>

namespace sconce {

// Returns what the node queries of its first operand, a tensor: sizes, rank, dtype, device, …. Nothing for any other node.
std::optional<AbstractValue> tensor_property(const Node& node, const AbstractValues& operands, SizeArithmetic& arithmetic);

// Returns what is known of a tensor that `sconce::autocast_cast` casts, if autocast casts such a tensor at all.
AbstractValue autocast_cast(const AbstractValues& operands);

// Returns the sizes of tensors joined along a dim by cat or stack. Nothing for any other node.
std::optional<std::vector<Dim>> sizes_of_joined(const Node& node, const AbstractValues& operands,
                                                SizeArithmetic& arithmetic);

// Returns the sizes of a tensor indexed by tensors of integers. Nothing for any other node, or if an index may be a mask.
std::optional<std::vector<Dim>> sizes_of_indexed(const Node& node, const AbstractValues& operands,
                                                 SizeArithmetic& arithmetic);

// Returns the sizes of a tensor reduced along the argument `dim`, a number, numbers or None, with the argument `keepdim`.
// Nothing for operators without both or with other tensors, or for no numbers: some then reduce all dims, some none.
std::optional<std::vector<Dim>> sizes_of_reduced(const Node& node, const AbstractValues& operands);

// Returns the sizes of the parts into which a tensor is split along a dim of known size. The number of parts and their
// lengths along that dim come from `example`, the result of a run in which only other dims differ. Nothing for any other
// node.
std::optional<std::vector<std::vector<Dim>>> sizes_of_parts(const Node& node, const AbstractValues& operands,
                                                            const c10::IValue& example);

// Returns the sizes to which both broadcast.
std::vector<Dim> broadcast(const std::vector<Dim>& a, const std::vector<Dim>& b, SizeArithmetic& arithmetic);

}  // namespace sconce
