// Moves loop-invariant nodes out of loops. Loop-invariant code motion.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Moves a node to before its loop.
//
// Legal when
//   - its operands are defined outside the loop;
//   - no node of the loop may write memory that it reads, or change global state that operators read;
//   - one result instead of one per iteration is unobservable: it is not written and does not escape, and the graph neither
//     walks autograd's graph nor compares tuples or strings by identity;
//   - it cannot raise; or the loop is known to run at least once, the node is in the loop's own block, and no node before it
//     there has an effect or may raise.
//
// Returns whether the graph changed.
bool hoist_loop_invariants(Graph& graph);

}  // namespace sconce
