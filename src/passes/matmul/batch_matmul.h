// Several matrix products as one.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   a·b + c·d + e                          [a c] · [b]  + e           products that are added up
//                                                  [d]
//   x·b, x·d            →   the columns of    x  · [b d]              … that share the left operand
//   a·y, c·y                the rows of      [a] · y                  … that share the right one
//                                            [c]
//
// with aten::cat for [ ], and aten::chunk or aten::split_with_sizes for columns and rows. For aten::mm, and aten::matmul by
// a matrix; decompose_ops makes them of aten::addmm and aten::linear.
//
// Legal where facts know dtypes, devices and ranks, and that the sizes go together, so that one product raises exactly where
// the several do; where the operands are not written, and the state that operators see does not change, between the products
// that become one; and where nobody can tell that the results lie in one storage: they are read and forgotten, neither
// written nor handed out, and columns, which lie apart, go to operators that do not mind. Autograd keeps the joined operands
// instead of the several, and would not notice that one is written behind the call: so these take no gradient, and
// nobody's gradient needs them, but for constants that nothing writes. Leaves graphs that ask for strides or addresses, walk
// autograd's graph, or give tensors other sizes in place; half precision where products are added up.
//
// Pays, and is done, where little is copied to join operands: constants are joined when the graph is compiled
// (propagate_constants, behind this pass), other operands in every run. The limits stand with the figures in
// batch_matmul.cpp.
//
// Results differ by rounding, of integers not at all: a longer sum, and other blocks in the kernel.
bool batch_matmul(Graph& graph);

enum class BatchWhere {
  kProfitable,
  kLegal,  // even where it is slower: for tests
};
bool batch_matmul(Graph& graph, BatchWhere where);

}  // namespace sconce
