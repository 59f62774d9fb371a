// Replaces in-place operators by their functional variants where that is unobservable.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   %s = aten::conv2d(…)              %s = aten::conv2d(…)
//   %z = aten::relu_(%s)          →   %z = aten::relu(%s)
//   %r = aten::add(%z, %s)            %r = aten::add(%z, %z)
//
// Legal when
//   - the written tensor was made in the same block, in memory of its own;
//   - before the write, the tensor has not escaped, no view of it is used later, and backward has saved nothing of it;
//   - the new tensor has the dtype, sizes and strides of the written one. Operators that always keep them need no facts
//     (relu_); operators that promote or broadcast need the facts of their operands (add_). If the result may escape, its
//     strides must be known.
//
// Observable: if a later write invalidates the written tensor for backward, backward raises with the in-place operator and
// may succeed with the functional one.
//
// Does not: replace writes to inputs, attributes, constants, views, elements of containers and values that blocks return, or
// in-place random operators. Skips graphs that walk autograd's graph.
// Returns whether the graph changed.
bool remove_tensor_mutation(Graph& graph);

}  // namespace sconce
