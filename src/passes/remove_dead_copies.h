// Copies and casts that change nothing, views that undo each other.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   aten::to, aten::type_as, aten::contiguous that the facts show to give back their operand itself   →  the operand
//   aten::clone of a contiguous tensor, aten::detach of one that requires no gradient                 →  the operand
//   aten::transpose back, aten::permute back                                                          →  the operand
//   aten::permute of aten::permute                                                                    →  one aten::permute
//
// A copy goes only where neither it nor its source is written, kept by autograd in the hands of others, or leaves the graph;
// a view that is undone only where it is not written and does not leave. Graphs in which operators in place change sizes are
// left alone.
bool remove_dead_copies(Graph& graph);

}  // namespace sconce
