// Gradients of convolutions of single pixels, by matrix products.
#pragma once

#include "ir/graph.h"

#include <c10/util/FunctionRef.h>

namespace sconce {

//   %x, %w, %b = aten::convolution_backward(%grad, %input, %weight, …)
//     →  %x = aten::bmm(%kernel, %rows)   %w = aten::sum(aten::bmm(%rows, %columns))   %b = aten::sum(%rows)
//
// Where sconce's own products are faster than those of BLAS, which oneDNN calls for such convolutions. A few pixels of large
// weights are multiplied as one matrix.
//
// Legal for float32 on the CPU, a kernel of one element, one group, stride 1, no padding, and an input that is known to be
// contiguous, in graphs that record no gradients. Results differ by rounding. Returns whether the graph changed.
bool decompose_pointwise_gradients(Graph& graph);
// The same if `gains` returns true. It is asked only if there are such convolutions.
bool decompose_pointwise_gradients(Graph& graph, c10::function_ref<bool()> gains);

}  // namespace sconce
