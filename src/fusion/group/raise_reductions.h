// raise_reductions: moves a reduction up to what it reduces, so that they may share a kernel (form_groups).
//
//   %g : Tensor = aten::threshold_backward(%d, %r, %zero)      %g : Tensor = aten::threshold_backward(%d, %r, %zero)
//   %i : Tensor = aten::mm(%g, %w)                         →   %b : Tensor = aten::sum(%g, %dims, %no, %none)
//   %b : Tensor = aten::sum(%g, %dims, %no, %none)             %i : Tensor = aten::mm(%g, %w)
#pragma once

#include "ir/graph.h"

namespace sconce {

// A reduction moves to the place after the node of its first operand, if kernels compute both, its other arguments are
// constants, and nothing with effects stands between. Returns whether one moved.
bool raise_reductions(Graph& graph);

}  // namespace sconce
