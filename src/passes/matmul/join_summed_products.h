// Multiplies once where an unrolled loop adds up products.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Computes a sum of products, or of sums over rows, from matrices that are put one under the other:
//
//   %s1 = aten::add(mm(t(%g0), %x0), mm(t(%g1), %x1))     →    %g = aten::cat([%g0, %g1, %g2, …])
//   %s2 = aten::add(%s1, mm(t(%g2), %x2))                      %x = aten::cat([%x0, %x1, %x2, …])
//   …                                                          %s = aten::mm(t(%g), %x)
//
// The recorded step of a recurrent model has such a sum for each weight, with a product for each time. Each product writes a
// matrix as large as the weight. batch_loop_products does the same in loops.
//
// Legal when
//   - the sizes of all parts are known and those of the sum: nothing is broadcast;
//   - parts are used in the sum alone, and no operand of a part is written before the sum is complete;
//   - the dtype is one in which sums may be reordered: not half precision.
//
// Done for at least four parts whose matrices are small beside their product. Results differ by rounding. Leaves dead nodes.
// Returns whether the graph changed.
bool join_summed_products(Graph& graph);

}  // namespace sconce
