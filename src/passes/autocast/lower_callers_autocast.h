#pragma once

#include "ir/graph.h"
#include "passes/simplify/propagate_facts.h"

namespace sconce {

// Makes explicit what the dispatcher would do to the graph in a caller that has autocast on for the CPU, so that a plan can
// run without autocast:
//
//   %y = aten::linear(%x, %w, %b)     →    %x16 = sconce::autocast_cast(%x, %bfloat16)
//                                          %w16 = …
//                                          %y = aten::linear(%x16, %w16, %b16)
//
// Operators whose treatment is not known, calls, forks and delegates get attr::kAutocast: they run with autocast on. So do
// operators with lists or optional tensors to cast. Joins are left to settle_autocast, which needs dtypes.
//
// Requires: refine_optional_tensors ran, and no facts but those of inputs and attributes, which casts do not change.
// The script's own autocast blocks are casts already (lower_autocast); as in LibTorch, the caller's autocast is on in them.
// Returns whether the graph changed.
bool lower_callers_autocast(Graph& graph, const CallersAutocast& autocast);

// Casts the operands of operators that lower_callers_autocast has left to run with autocast on, and whose optional tensors
// are known by now to be there or None. Facts of results are then to be derived again. Returns whether the graph changed.
bool lower_known_operands(Graph& graph, const CallersAutocast& autocast);

}  // namespace sconce
