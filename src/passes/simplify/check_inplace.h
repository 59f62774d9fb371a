// Fails if a folded constant is written.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Fails with an internal error, which names the node, if an in-place operator may write a folded constant.
//
// A list or tensor that propagate_constants has computed carries `folded=1`. It is one object, shared by all runs, so a
// write to it would change what later runs read. Follows folded constants through views, casts, branches and loops, and does
// not use the alias analysis on which the folding relied.
//
// Does not: check constants of the model itself. They may be written, and keep what is written from run to run.
// Returns false: the graph never changes.
bool check_inplace(Graph& graph);

// The name of the attribute that marks folded constants, an int.
c10::Symbol folded_attribute();

}  // namespace sconce
