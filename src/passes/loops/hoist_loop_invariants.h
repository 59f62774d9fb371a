// Takes out of loops what every iteration computes anew.
#pragma once

#include "ir/graph.h"

namespace sconce {

// A node moves to before its loop when its operands come from outside, nothing in the loop may write what it reads or change
// the state that operators see, and nobody can tell one result from one per iteration. A node that may raise moves only out
// of loops that surely run once, and only if it stands in the loop's own block with no effect before it.
bool hoist_loop_invariants(Graph& graph);

}  // namespace sconce
