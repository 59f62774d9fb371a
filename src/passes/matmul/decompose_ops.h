// Decomposes addmm and linear where batch_matmul gains.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   aten::addmm(%b, %x, %y, %beta, %alpha)   →   %p = aten::mm(%x, %y)     %s = aten::mul(%p, %alpha)   unless alpha is 1
//                                                %r = aten::add(%s, %b, %beta)
//   aten::linear(%x, %w, %b)                 →   %t = aten::t(%w)          %p = aten::matmul(%x, %t)    mm of a matrix %x
//                                                %r = aten::add(%p, %b, 1)                              unless %b is None
//
// Done where batch_matmul gains: another operator of the block multiplies by the same matrix, or the result is added to a
// product. Elsewhere the whole operator is faster. Norms are not decomposed: no later pass uses their parts.
//
// Legal when
//   - dtype, device and rank are known, and equal for all operands and the result (autocast would cast some of them);
//   - %b broadcasts to the product, not the reverse: the whole operator raises where its parts would not;
//   - the result of a batched `linear` with a bias is only read inside the graph: it is a view, the sum of the parts is not;
//   - factors are constants other than 0.
//
// Does not: decompose half-precision operators, whose parts would each round, or operators whose %w is a vector.
//
// Results differ by rounding, except those of integers: the bias is added last, not first. Without a bias, `linear` gives
// the same bits. Gradients are the same. Returns whether the graph changed.
bool decompose_ops(Graph& graph);

}  // namespace sconce
