#pragma once

#include "ir/graph.h"

namespace sconce {

// Removes every node without effects whose outputs nobody needs, and what branches and loops hand on to nobody: a value that
// only goes round in a loop, too.
//
// Requires: a verified graph. Keeps: order, types, graph inputs and outputs; random nodes (rule R5).
// Does not: remove writes to memory that nobody reads.
// Returns whether the graph changed.
bool eliminate_dead_nodes(Graph& graph);

}  // namespace sconce
