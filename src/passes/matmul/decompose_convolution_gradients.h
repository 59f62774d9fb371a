// Computes gradients of large convolutions over few pixels by matrix products, in recorded steps.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   %x, %w, %b = aten::convolution_backward(%grad, %input, %weight, …)
//     →  If a product gains:  %columns = aten::im2col(%input, …)   %w = aten::mm(%rows, %columns)   …
//        else:                the operator itself
//
// oneDNN computes the gradients of large weights over few pixels slowly; ops/row_functions.h (convolution_gradients) says
// where a product gains, and holds the code. Passes over recorded steps run it; backward texts of convolutions call the same
// code.
//
// Legal for plain convolutions of one group, of whose operands the ranks are known, in graphs that record no gradients.
// Results differ by rounding. Returns whether the graph changed.
bool decompose_convolution_gradients(Graph& graph);

}  // namespace sconce
