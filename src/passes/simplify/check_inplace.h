// A check, not a transformation: what passes have made one for all, nobody writes.
#pragma once

#include "ir/graph.h"

namespace sconce {

// A list or tensor that propagate_constants has computed carries `folded=1`: it is one object for all runs. An operator in
// place that gets hold of it would change what later runs read. Follows such constants through views, casts, branches and
// loops, without the alias analysis that let them be folded; internal error with the node that writes.
//
// Constants of the model's own may be written: they keep what is written from run to run.
// Returns false: changes nothing.
bool check_inplace(Graph& graph);

// The attribute, an int.
c10::Symbol folded_attribute();

}  // namespace sconce
