// Sizes as values of the program, and the sizes of results that no shape function knows.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

#include <optional>
#include <vector>

namespace sconce {

// What the node asks of its first operand, a tensor: sizes, rank, dtype, device, …. Nothing where it asks for nothing.
std::optional<AbstractValue> tensor_property(const Node& node, const AbstractValues& operands, SizeArithmetic& arithmetic);

// Of tensors joined along a dim: cat and stack. Nothing for other nodes.
std::optional<std::vector<Dim>> sizes_of_joined(const Node& node, const AbstractValues& operands,
                                                SizeArithmetic& arithmetic);

// Of the parts that a tensor is cut into along a dim whose size is known: how many there are, and how long each is along the
// dim, is what the example says, the result of a run on other sizes elsewhere. Nothing for other nodes.
std::optional<std::vector<std::vector<Dim>>> sizes_of_parts(const Node& node, const AbstractValues& operands,
                                                            const c10::IValue& example);

// The sizes to which both are broadcast.
std::vector<Dim> broadcast(const std::vector<Dim>& a, const std::vector<Dim>& b, SizeArithmetic& arithmetic);

}  // namespace sconce
