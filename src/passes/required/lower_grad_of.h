// Replaces prim::GradOf by a branch on whether a gradient is defined.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Replaces prim::GradOf, which computes a gradient if any incoming gradient is defined, by an explicit branch:
//
//   %g = prim::GradOf[name="aten::mul"](%in)      %any : bool = prim::AutogradAnyNonZero(%in)
//     block0():                                   %g = prim::If(%any)
//       %r = …                               →      block0():
//       -> (%r)                                       %r = …
//                                                     -> (%r)
//                                                   block1():
//                                                     %zero = prim::AutogradZero()
//                                                     -> (%zero)
//
// Requires: a verified graph. After it no prim::GradOf is left. Returns whether the graph changed.
bool lower_grad_of(Graph& graph);

}  // namespace sconce
