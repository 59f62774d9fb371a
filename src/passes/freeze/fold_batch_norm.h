// Batch norms in evaluation mode become part of the convolution or matrix product before them.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   y = conv(x, W, b)                        z = conv(x, W·s, (b - mean)·s + bias)      with s = weight / sqrt(var + eps)
//   z = batch_norm(y, weight, bias, mean,    ⇒
//                  var, training=False, …)
//
// for convolutions of any number of dimensions, grouped and transposed ones, and aten::linear. Requires that all parameters
// are constants of one floating dtype that take no gradient and are not written, that nobody else uses y (to ask for its
// size is allowed, while z is not written yet), and that the channels of both are the same dimension: the rank of y is
// known, is checked before, or is the only one that the operator takes. Leaves alone all else, and what would overflow.
//
// Values change by rounding, so this runs where the user asked for it: in frozen modules.
bool fold_batch_norm(Graph& graph);

}  // namespace sconce
