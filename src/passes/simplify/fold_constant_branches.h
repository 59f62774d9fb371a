// Branches and loops whose condition is constant.
#pragma once

#include "ir/graph.h"

#include <functional>

namespace sconce {

// Simplifies control flow:
//
//   prim::If with a constant condition                  the nodes of the taken branch
//   prim::Loop that runs no iteration                   removed; its outputs are the initial values
//   output of prim::If, the same value in both branches that value
//   output of prim::If, True in one and False in the other   the condition
//
// Returns whether the graph changed.
bool fold_constant_branches(Graph& graph);

// Visits nodes like for_each_node, for passes that fold constants while they walk. If the condition of a prim::If is
// constant when the walk reaches it, the taken branch replaces the If, and only its nodes are visited. A chain of branches,
// each of which decides the next, is thus settled in one walk. Returns whether a branch was taken.
bool for_each_node_taking_branches(const Block& block, const std::function<void(Node*)>& visit);

}  // namespace sconce
