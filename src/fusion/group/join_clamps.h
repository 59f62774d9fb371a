// Lets convolutions with packed weights clamp their results.
//
//   %y : Float(device=cpu) = aten::conv2d(%x, …)          %z : Tensor = sconce::kernel()
//   %z : Tensor = sconce::kernel()                          block0():
//     block0():                                       →       %y : Float(device=cpu) = aten::conv2d(%x, …)
//       %z.1 : Tensor = aten::relu(%y)                        %z.1 : Tensor = aten::relu(%y)
//       -> (%z.1)                                             -> (%z.1)
//
// Requires kernel nodes (form_groups). The kernel of such a node (kernels/clamped_convolution.h) has packed
// weights, so the pass runs only where plans pack weights. Nothing but constants may stand between the two nodes.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Returns whether the graph changed.
bool join_clamps(Graph& graph);

}  // namespace sconce
