// Convolutions of images run channels-last, where that cannot be told from the results.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   y = conv2d(x, W, b)             y = conv2d(x, W', b)       W' is W with its elements in channels-last order
//   z = relu_(y)                 ⇒  z = relu_(y)
//   …                               …
//   return flatten(z, 1)            return flatten(z, 1)
//
// A convolution whose weight lies so converts an operand that does not, and gives a result that does; operators that keep
// the layout (analysis/layout_use.h) carry it on to the next one. A weight is converted, once, if it is a constant of
// float32 on the CPU and the layout stays inside: all that is made of the convolution's result goes through such operators,
// or into one whose result is the same either way (`flatten` of batches, means, questions for sizes). Where another
// operator, a container or the caller gets it, that gets a copy with the strides it had before, as far as facts know them;
// the convolution stays as it is where they don't.
//
// Values change by rounding, so this runs where the user asked for it: in frozen modules. Changes nothing without oneDNN,
// and in graphs in which operators in place change sizes.
bool propagate_channels_last(Graph& graph);

}  // namespace sconce
