// Merges nodes with the same operator, operands and attributes. Common-subexpression elimination.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Replaces a node by an earlier one with the same kind, operands and attributes, in its block or an enclosing one.
//
// Legal when
//   - no node between the two may write memory that they read, or change global state that operators read;
//   - sharing one result is unobservable: neither result is written, at most one of them escapes, and the graph neither
//     walks autograd's graph nor compares tuples or strings by identity. (Results that existed before are always shared.)
//
// Does not: merge casts to fewer bits whose results may require a gradient. The gradients of their users would be added up
// in those bits.
// Requires: a verified graph. Keeps: order, graph inputs and outputs; random nodes (rule R5).
// Returns whether the graph changed.
bool eliminate_common_nodes(Graph& graph);

}  // namespace sconce
