#pragma once

#include "ir/graph.h"
#include "passes/simplify/propagate_facts.h"

namespace sconce {

// Completes lower_callers_autocast, once dtypes are known. A cast becomes
//
//   its operand            if autocast leaves such tensors alone: integers, double, the dtype itself;
//   aten::to               if it casts them;
//   one cast for all uses  if LibTorch keeps the cast tensor for the autocast region: the operand may be a leaf that
//                          requires a gradient. It stays a sconce::autocast_cast, which asks LibTorch's cache;
//   what it was            if the dtype is not known.
//
// Joins promote their operands as autocast does. Those that autocast may reject get attr::kAutocast.
//
// Requires: propagate_facts ran after lower_callers_autocast.
// Returns whether the graph changed.
bool settle_autocast(Graph& graph, const CallersAutocast& autocast);

}  // namespace sconce
