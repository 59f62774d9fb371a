// Unrolls loops with a constant trip count.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Unrolls loops that run a constant number of iterations without an early exit, if the result has at most 1,024 nodes. Inner
// loops are unrolled first. Returns whether the graph changed.
bool unroll_loops(Graph& graph);

}  // namespace sconce
