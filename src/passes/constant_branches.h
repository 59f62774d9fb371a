// Branches and loops whose way is known.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Puts the taken branch of a prim::If with a constant condition in its place; removes loops that run no iteration; gives the
// users of an If's output the value itself where both branches give it, and the condition where they give true and false.
bool constant_branches(Graph& graph);

}  // namespace sconce
