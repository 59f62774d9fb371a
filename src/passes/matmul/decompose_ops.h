// Operators that multiply matrices and do more, in their parts.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   aten::addmm(%b, %x, %y, %beta, %alpha)   →   %p = aten::mm(%x, %y)     %s = aten::mul(%p, %alpha)   unless alpha is 1
//                                                %r = aten::add(%s, %b, %beta)
//   aten::linear(%x, %w, %b)                 →   %t = aten::t(%w)          %p = aten::matmul(%x, %t)    mm of a matrix %x
//                                                %r = aten::add(%p, %b, 1)                              unless %b is None
//
// where batch_matmul gains: in the same block another operator multiplies by the same matrix, or what this one gives is
// added to a product. Others are faster whole. Norms stay whole, too: nothing behind this pass gains from their parts.
//
// Dtypes, devices and ranks must be known from facts, be the same for all operands and the result (autocast would cast
// some), and %b must broadcast to the product, not the other way round: else the whole refuses what its parts accept.
// Factors are constants, not 0. Leaves half precision, where each part would round, and %w that is a vector.
//
// Results differ from those of the whole by rounding, of integers not at all: the bias is added last, not first. `linear`
// without bias is what it was. Gradients the same.
bool decompose_ops(Graph& graph);

}  // namespace sconce
