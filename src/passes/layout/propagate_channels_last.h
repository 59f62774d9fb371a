// Runs convolutions of images channels-last where that is unobservable, in frozen modules and without gradients.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   y = conv2d(x, W, b)             y = conv2d(x, W', b)       W' is W with its elements in channels-last order
//   z = relu_(y)                 ⇒  z = relu_(y)
//   …                               …
//   return flatten(z, 1)            return flatten(z, 1)
//
// A convolution with a channels-last weight converts its image if necessary, and returns a channels-last result. Operators
// that preserve the layout (analysis/layout_use.h) pass it on to the next convolution.
//
// Converts a weight, once, when
//   - it is a float32 constant on the CPU;
//   - the new layout is unobservable: every value made from the convolution's result goes through operators that preserve
//     the layout, or to operators whose result does not depend on it (`flatten` of a batch, means, queries of sizes). Any
//     other operator, a container or the caller gets a copy with the strides of before, if facts know these; else the
//     convolution stays as it is.
//
// If the weight is no constant, its image is converted, by `contiguous`, where facts tell that image and weight are float32
// tensors of four dimensions on the CPU, and the new layout is unobservable.
//
// Results change by rounding, and gradients would be computed in the other layout, so this pass runs only in frozen modules
// and in plans that record no gradients, and not in steps of training, where it gains nothing. Skips graphs that change
// sizes in place, and does nothing without oneDNN. Returns whether the graph changed.
bool propagate_channels_last(Graph& graph);

}  // namespace sconce
