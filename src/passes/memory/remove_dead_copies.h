// Copies and casts that change nothing.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   aten::to, aten::type_as, aten::contiguous that the facts show to give back their operand itself   →  the operand
//   aten::clone to the strides that the tensor has, aten::detach of one that requires no gradient     →  the operand
//
// A copy goes only where neither it nor its source is written, kept by autograd in the hands of others, or leaves the graph;
// a view of the whole only where it is not written and does not leave. Graphs in which operators in place change sizes are
// left alone.
bool remove_dead_copies(Graph& graph);

}  // namespace sconce
