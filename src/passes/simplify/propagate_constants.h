// Computes nodes whose operands are constants. Constant folding.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Runs nodes at compile time and replaces them by their results.
//
// Legal when
//   - the node has no effects;
//   - every operand is a constant, or a list that the graph makes of constant tensors;
//   - a result that is a list or tensor is neither written nor escapes. Every run must give its caller new objects;
//   - running the node does not raise. A node that raises stays, because a run may never reach it.
//
// Returns whether the graph changed.
bool propagate_constants(Graph& graph);

}  // namespace sconce
