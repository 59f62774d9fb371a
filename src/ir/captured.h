// sconce::captured: a range of nodes whose work a device may capture and replay (a CUDA graph). The pass form_captures
// makes these nodes; plan/captured/ runs them.
//
//   %y : Tensor = sconce::captured_0(%x, %w)
//   with sconce::captured_0 = graph(%x : Tensor, %w : Tensor): …
//
// Operands and results are tensors, numbers, lists of numbers and None. If operands of the same sizes, dtypes and values
// come again, the nodes send the same work to the device. A node with the attribute `has_effects` may write operands, and
// return tensors that share their memory; any other node has no effects, and its results are new tensors. A node with the
// attribute `draws` draws random numbers, in either case.
#pragma once

#include "ir/graph.h"

namespace sconce {

inline const c10::Symbol kCapturedKind = c10::Symbol::fromQualString("sconce::captured");

namespace attr {
inline const c10::Symbol kDraws = c10::Symbol::attr("draws");
}  // namespace attr

// Puts the nodes of every captured node in its place. Returns whether there was one.
bool dissolve_captured_nodes(Graph& graph);

}  // namespace sconce
