// Removes views and copies that cancel each other, merges consecutive views.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   aten::permute, aten::transpose, aten::t that cancel, or change nothing            →  the tensor they start from
//   any two of them                                                                   →  one aten::permute
//   aten::contiguous of aten::contiguous, both of one format                          →  the inner one
//   aten::contiguous or aten::clone back, with pointwise operators in between         →  the tensor they start from
//   aten::to_dense of aten::to_mkldnn, and the reverse                                →  the tensor they start from
//   aten::view, aten::reshape, aten::flatten of one of these three                    →  one of the tensor they start from
//   one of these three, to the sizes that the tensor has                              →  the tensor
//
// Legal when
//   - orders of dimensions are constants, and the rank is known to be theirs: the operators raise for another;
//   - for all but the first three rules, the sizes and strides of the first tensor are known and are those of a new tensor;
//   - a removed view is neither written nor escapes;
//   - neither a removed copy nor its source is written or escapes, and the source comes from the graph itself. Autograd
//     would save the source in place of the copy, and miss a later write by the caller.
//
// Skips graphs that change sizes in place or walk autograd's graph. A single copy or cast that changes nothing is the
// business of remove_dead_copies.h. Returns whether the graph changed.
bool remove_layout_changes(Graph& graph);

// The same for a recorded graph, whose outputs may be views or not: a view that leaves the graph becomes the tensor it
// starts from, if that is new and known by this view alone.
bool remove_layout_changes_of_outputs(Graph& graph);

}  // namespace sconce
