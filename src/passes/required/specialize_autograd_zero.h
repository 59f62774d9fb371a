// Removes computations on gradients known to be undefined.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Removes computations on gradients that are known to be undefined. Starts from the `defined` facts of the graph's inputs
// and of elements that are read from lists.
//
//   prim::GradOf, all inputs undefined              →  its outputs are prim::AutogradZero
//   prim::GradOf, an input defined                  →  its block, inlined
//   prim::AutogradAdd(undefined, %g), or reversed   →  %g
//   prim::AutogradAdd, both defined                 →  aten::add
//   prim::AutogradAnyNonZero, decided by the facts  →  a constant
//   other tensors that are undefined in every run   →  prim::AutogradZero
//
// Definedness is followed through branches, loops (to a fixpoint) and lists that operators return.
//
// Requires: a verified graph. Returns whether the graph changed.
bool specialize_autograd_zero(Graph& graph);

}  // namespace sconce
