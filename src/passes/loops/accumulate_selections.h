// Adds up gradients of what a loop selects from a tensor in one tensor.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Adds up gradients of selections in one tensor:
//
//   %all : Tensor = prim::Loop(%n, %true, %zero)        %all : Tensor = aten::zeros(%sizes, …)
//     block0(%i : int, %sum : Tensor):                   = prim::Loop(%n, %true)
//       %part = aten::select_backward(                →    block0(%i : int):
//           %g, %sizes, %dim, %i)                            %at : Tensor = aten::select(%all, %dim, %i)
//       %next = prim::AutogradAdd(%sum, %part)               aten::add_(%at, %g, 1)
//       -> (%true, %next)                                    -> (%true)
//
// Otherwise every iteration would write a tensor as large as the one that was selected from. A loop that runs no iteration
// leaves an undefined tensor, as before.
//
// Legal because the loop alone holds the sum, and because autograd does not record backward graphs: only for those.
// Requires facts: the dtype and device of the part. Returns whether the graph changed.
bool accumulate_selections(Graph& graph);

}  // namespace sconce
