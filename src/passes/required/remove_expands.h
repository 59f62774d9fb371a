// Removes implicit expands, which only make broadcasting explicit.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Removes implicit expands, which make the broadcasting explicit that every consumer does by itself:
//
//   %e = aten::expand(%x, %size, %true)   # implicit        →   uses of %e become uses of %x
//
// Requires: a verified graph. Does not: remove expands that the model's author wrote (implicit=False).
// Returns whether the graph changed.
bool remove_expands(Graph& graph);

}  // namespace sconce
