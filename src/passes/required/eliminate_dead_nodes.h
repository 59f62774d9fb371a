// Removes nodes without effects whose outputs are unused.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Removes every node whose outputs are unused and which has no effects. Removes unused outputs of branches and loops, too,
// including a value that a loop only carries from one iteration to the next.
//
// Requires: a verified graph. Keeps: order, types, graph inputs and outputs; random nodes (rule R5).
// Does not: remove writes to memory that is never read.
// Returns whether the graph changed.
bool eliminate_dead_nodes(Graph& graph);

}  // namespace sconce
