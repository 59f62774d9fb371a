// Removes copies and casts that change nothing.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Replaces an operator by its operand:
//
//   aten::to, aten::type_as, aten::contiguous   if facts show that it returns the operand itself
//   aten::clone                                 if the operand has the strides of the copy already
//   aten::detach                                if the operand requires no gradient
//
// Legal for a clone when
//   - neither the copy nor its source is written or escapes;
//   - the source comes from the graph itself. Autograd would save the source in place of the copy, and miss a later write by
//     the caller.
// Legal for a detach when its result is neither written nor escapes.
//
// Skips graphs that change sizes in place or walk autograd's graph. Returns whether the graph changed.
bool remove_dead_copies(Graph& graph);

}  // namespace sconce
