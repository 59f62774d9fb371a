// Computes several matrix products as one product.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   a·b + c·d + e                          [a c] · [b]  + e           products that are summed
//                                                  [d]
//   x·b, x·d            →   the columns of    x  · [b d]              products that share the left operand
//   a·y, c·y                the rows of      [a] · y                  products that share the right operand
//                                            [c]
//
// Uses aten::cat for [ ], and aten::chunk or aten::split_with_sizes for columns and rows. Handles aten::mm, and aten::matmul
// with a matrix on the right; decompose_ops makes these of aten::addmm and aten::linear.
//
// Legal when
//   - the dtype, device and rank of every operand are known and the sizes are compatible, so that the batched product raises
//     exactly when one of the originals would;
//   - no operand is written, and no global state that operators read changes, between the first and the last product;
//   - sharing storage is unobservable: results are only read inside the graph, and results with non-contiguous rows go only
//     to layout-agnostic operators;
//   - the operands need no gradient, except constants that are never written. Autograd would save the joined copy and miss a
//     later in-place write to an original.
//
// Skips graphs that read strides or data pointers, walk autograd's graph, or resize tensors; and half-precision sums.
//
// Done when joining the operands copies little. Constants are joined at compile time, by propagate_constants after this
// pass; other operands are joined in every run. product_cost.cpp has the limits and the measurements.
//
// Results differ by rounding, except those of integers: the sum is longer, and the kernel's blocks are others.
// Returns whether the graph changed.
bool batch_matmul(Graph& graph);

enum class BatchWhere {
  kProfitable,
  kLegal,  // even where it is slower: for tests
};
bool batch_matmul(Graph& graph, BatchWhere where);

}  // namespace sconce
