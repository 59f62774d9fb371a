#pragma once

#include "ir/graph.h"

namespace sconce {

// Removes computations on gradients that are known to be undefined. Starts from the `defined` facts of the graph's inputs.
//
//   prim::GradOf, all inputs undefined              →  its outputs are prim::AutogradZero
//   prim::GradOf, an input defined                  →  its block, inlined
//   prim::AutogradAdd(undefined, %g), or reversed   →  %g
//   prim::AutogradAdd, both defined                 →  aten::add
//   prim::AutogradAnyNonZero, decided by the facts  →  a constant
//
// Requires: a verified graph.
// Does not: follow definedness through prim::If and prim::Loop; their outputs count as unknown.
// Returns whether the graph changed.
bool specialize_autograd_zero(Graph& graph);

}  // namespace sconce
