// Keeps the errors of operators whose results a pass no longer needs.
#pragma once

#include "ir/graph.h"

#include <c10/util/FunctionRef.h>

namespace sconce {

// Runs a pass that replaces values by known numbers, and keeps the nodes that it leaves dead where they may raise:
//
//   %m : Tensor = aten::max(%a)          %m : Tensor = aten::max[kept_error=1](%a)
//   %n : int = aten::numel(%m)           return (1)
//   return (%n)
//
// LibTorch calls the operator, which raises if %a has no elements. A node stays unless its form alone can be wrong, which
// the facts that gave the number have settled. Nodes that were dead before are left to eliminate_dead_nodes, as LibTorch
// removes them, too. Returns whether the graph changed.
bool keep_errors(Graph& graph, c10::function_ref<bool()> pass);

}  // namespace sconce
