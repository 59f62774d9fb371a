// Lowers `with torch.autocast(…)` blocks to casts of operands.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Lowers `with torch.autocast(device, dtype, enabled):` blocks to casts (rule R6). Operands of the operators inside a block
// are cast according to the operator's autocast policy; the block's prim::Enter and prim::Exit are removed.
//
//   prim::Enter(%autocast)                       %y16 = aten::_autocast_to_reduced_precision(%y, …)
//   %z = aten::mm(%x, %y)                   →    %x16 = …
//   prim::Exit(%autocast)                        %z = aten::mm(%x16, %y16)
//
// Requires: calls inlined, so that the SetAttr nodes of the autocast object's constructor are in the graph.
// Does not: change anything outside such blocks.
// Throws c10::Error, as LibTorch does, if
//   - device, dtype or enabled is not a constant;
//   - the autocast object has another use (`with … as x`);
//   - the block calls an operator that is not safe under autocast.
// Returns whether the graph changed.
bool lower_autocast(Graph& graph);

}  // namespace sconce
