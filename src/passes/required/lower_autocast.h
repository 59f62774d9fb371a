#pragma once

#include "ir/graph.h"

namespace sconce {

// Gives `with torch.autocast(device, dtype, enabled):` blocks of a script their effect (rule R6): the operands of the
// operators inside are cast as autocast_policy.h says, and the prim::Enter and prim::Exit of the block go.
//
//   prim::Enter(%autocast)                       %y16 = aten::_autocast_to_reduced_precision(%y, …)
//   %z = aten::mm(%x, %y)                   →    %x16 = …
//   prim::Exit(%autocast)                        %z = aten::mm(%x16, %y16)
//
// Requires: calls inlined, so that the constructor's SetAttr nodes of the autocast object are in sight.
// Throws c10::Error (the user's fault, as in LibTorch) when device, dtype or enabled are not constants, when the object is
// used otherwise (`with … as x`), or when an operator is called that is not safe under autocast.
// Does not: change anything outside such blocks. Returns whether the graph changed.
bool lower_autocast(Graph& graph);

}  // namespace sconce
