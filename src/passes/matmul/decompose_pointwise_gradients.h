// Computes gradients of convolutions of single pixels by matrix products.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   %x, %w, %b = aten::convolution_backward(%grad, %input, %weight, …)
//     →  %x = aten::bmm(%kernel, %rows)   %w = aten::sum(aten::bmm(%rows, %columns))   %b = aten::sum(%rows)
//
// oneDNN reorders the operands of such convolutions, which mostly costs more than it gains: products take 0.4 to 1.7 times
// its time on one thread (median 0.9), 0.2 to 1.1 on two (median 0.7). A few pixels of large weights are multiplied as one
// matrix.
//
// Legal for float32 on the CPU, a kernel of one element, one group, stride 1, no padding, and an input that is known to be
// contiguous or channels-last, in graphs that record no gradients. Results differ by rounding. Returns whether the graph
// changed.
bool decompose_pointwise_gradients(Graph& graph);

}  // namespace sconce
