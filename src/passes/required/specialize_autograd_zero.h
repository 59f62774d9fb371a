#pragma once

#include "ir/graph.h"

namespace sconce {

// Removes the work on gradients that are known to be undefined, from the `defined` facts of the graph's inputs on:
//
//   prim::GradOf, all inputs undefined              →  its outputs are prim::AutogradZero
//   prim::GradOf, an input defined                  →  its block, inlined
//   prim::AutogradAdd(undefined, %g), or reversed   →  %g
//   prim::AutogradAdd, both defined                 →  aten::add
//   prim::AutogradAnyNonZero, decided by the facts  →  a constant
//
// Requires: a verified graph. What depends on a prim::If or prim::Loop counts as unknown and stays.
// Returns whether the graph changed.
bool specialize_autograd_zero(Graph& graph);

}  // namespace sconce
