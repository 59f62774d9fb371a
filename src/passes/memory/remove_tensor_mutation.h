// Operators in place, as operators that give a new tensor.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   %s = aten::conv2d(…)              %s = aten::conv2d(…)
//   %z = aten::relu_(%s)          →   %z = aten::relu(%s)
//   %r = aten::add(%z, %s)            %r = aten::add(%z, %z)
//
// where nobody can tell: the written tensor was made in the same block, in memory of its own, and up to the write nobody has
// got hold of it, a view of it, or what backward needs of it; and the new tensor has its dtype, sizes and strides. What its
// operator always keeps, needs no facts (relu_); what promotes or broadcasts, needs those of its operands (add_). Where the
// result may be seen by others, its strides must be known.
//
// Where a later write spoils the written tensor for backward, backward raises with the operator in place; with the
// functional one it may succeed.
//
// Leaves writes to inputs, attributes, constants, views, elements of containers and values that blocks hand on, writes of
// random operators, and graphs that walk autograd's graph themselves.
bool remove_tensor_mutation(Graph& graph);

}  // namespace sconce
