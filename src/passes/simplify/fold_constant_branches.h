// Branches and loops whose way is known.
#pragma once

#include "ir/graph.h"

#include <functional>

namespace sconce {

// Puts the taken branch of a prim::If with a constant condition in its place; removes loops that run no iteration; gives the
// users of an If's output the value itself where both branches give it, and the condition where they give true and false.
bool fold_constant_branches(Graph& graph);

// Like for_each_node, for passes that find out constants on their way: of a prim::If whose condition is constant by the time
// it is reached, only the taken branch is visited, and comes to stand in the If's place. So one walk settles what would take
// a round of passes for each branch that decides another. Returns whether it took a branch.
bool for_each_node_taking_branches(const Block& block, const std::function<void(Node*)>& visit);

}  // namespace sconce
