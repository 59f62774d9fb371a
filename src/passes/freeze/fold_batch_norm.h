// Folds batch norms into the convolutions before them, in frozen modules.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   y = conv(x, W, b)                        z = conv(x, W·s, (b - mean)·s + bias)      with s = weight / sqrt(var + eps)
//   z = batch_norm(y, weight, bias, mean,    ⇒
//                  var, training=False, …)
//
// Folds into convolutions of any number of dimensions, grouped and transposed ones included, and into aten::linear.
//
// Legal when
//   - all parameters are constants of one floating dtype, need no gradient, and are never written;
//   - y has no other use, except queries of its sizes before z is written;
//   - the channels of both operators are the same dimension: the rank of y is known, is checked before, or is the only one
//     that the operator accepts;
//   - the folded weights do not overflow.
//
// Results change by rounding, so this pass runs only in frozen modules. Returns whether the graph changed.
bool fold_batch_norm(Graph& graph);

}  // namespace sconce
