// Replaces branches with a constant condition, removes loops that never run.
#pragma once

#include "ir/graph.h"

#include <functional>

namespace sconce {

// Simplifies control flow:
//
//   prim::If with a constant condition                                →  the nodes of the taken branch
//   prim::Loop that runs no iteration                                 →  the initial values, as its outputs
//   what the body of a prim::Loop returns as it was given             →  the initial value, in the body and after it
//   an output of prim::If that is one value in both branches          →  that value
//   an output of prim::If that is True in the first branch and False  →  the condition
//   in the second
//
// Returns whether the graph changed.
bool fold_constant_branches(Graph& graph);

// Visits nodes like for_each_node, for passes that fold constants while they walk. If the condition of a prim::If is
// constant when the walk reaches it, the taken branch replaces the If, and only its nodes are visited. A chain of branches,
// each of which decides the next, is thus settled in one walk. Returns whether a branch was taken.
bool for_each_node_taking_branches(const Block& block, const std::function<void(Node*)>& visit);

}  // namespace sconce
