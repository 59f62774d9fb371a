// Computes at compile time what depends on constants alone.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Runs nodes without effects whose operands are constants, or lists that the graph makes of constant tensors, and puts their
// results in their place. Lists and tensors only where nobody writes them and they don't leave the graph: every run gives
// its caller objects of its own. A node that raises stays: whether it is reached is for the run to find out.
bool propagate_constants(Graph& graph);

}  // namespace sconce
