#pragma once

#include "ir/graph.h"

namespace sconce {

// Removes the expands that only spell out broadcasting, which every consumer does by itself:
//
//   %e = aten::expand(%x, %size, %true)   # implicit        →   uses of %e become uses of %x
//
// Requires: a verified graph. Does not: touch expands that the model's author wrote (implicit=False).
// Returns whether the graph changed.
bool remove_expands(Graph& graph);

}  // namespace sconce
