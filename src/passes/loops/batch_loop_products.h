// Multiplies once for several iterations of a loop that adds up products.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Multiplies once for several iterations where a loop adds up products of its own matrices, as the backward of a recurrent
// layer does:
//
//   %sum + mm(t(%g), %x)    →    aten::append(%gs, %g); aten::append(%xs, %x);
//                                every 16 iterations, and after the loop: %sum + mm(t(cat(%gs)), cat(%xs))
//
// and the same for sums of %g over its rows. A batch of few rows makes such products slow: each reads and writes a matrix as
// large as the weight.
//
// Legal because a product of matrices put one under the other is the sum of their products. The order of additions changes,
// so the results are rounded in another way. Requires facts: the ranks of the matrices. Returns whether the graph changed.
bool batch_loop_products(Graph& graph);

}  // namespace sconce
