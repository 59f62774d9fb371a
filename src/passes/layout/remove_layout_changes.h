// Changes of layout that undo one another or do nothing.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   aten::permute, aten::transpose, aten::t that lead back, or nowhere                →  the tensor they start from
//   any two of them                                                                   →  one aten::permute
//   aten::contiguous of aten::contiguous, both of one format                          →  the inner one
//   aten::contiguous back, aten::clone back, with operators on elements in between    →  the tensor they start from
//   aten::to_dense of aten::to_mkldnn, and the other way round                        →  the tensor they start from
//   aten::view, aten::reshape, aten::flatten of such                                  →  one of the tensor they start from
//   the same, to the sizes that the tensor has                                        →  the tensor
//
// The orders of dimensions are constants. All but the first three need facts: sizes and strides of the tensor at the start
// are known, and as those of a new one. A view that is undone is not written and does not leave; of a copy that is undone
// nobody can tell, so neither it nor its source is written, kept by autograd in the hands of others, or leaves. Graphs in
// which operators in place change sizes are left alone. (That a single copy or cast does nothing: remove_dead_copies.h.)
bool remove_layout_changes(Graph& graph);

}  // namespace sconce
