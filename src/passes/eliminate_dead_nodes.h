#pragma once

#include "ir/graph.h"

namespace sconce {

// Removes every node whose outputs are unused and which has no effects.
//
// Requires: a verified graph. Keeps: order, types, graph inputs and outputs; random nodes (rule R5).
// Does not: shorten the output lists of prim::If and prim::Loop, remove writes to memory that nobody reads.
// Returns whether the graph changed.
bool eliminate_dead_nodes(Graph& graph);

}  // namespace sconce
