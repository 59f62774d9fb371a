// Loops with a known number of iterations, written out.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Writes out loops that run a constant number of iterations to the end, where that gives at most 1,024 nodes. Inner loops
// first.
bool unroll_loops(Graph& graph);

}  // namespace sconce
