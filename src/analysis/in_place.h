// Operators in place, and what they are without writing.
#pragma once

#include "ir/graph.h"

namespace sconce {

// aten::relu_ → aten::relu: the operator that gives as a new tensor what `op` writes into its first argument. It has the
// name without the `_`, the same overload and the same other arguments. Null when there is none, when `op` writes or hands
// on anything else, and when autocast casts the operands of the one and not of the other.
const c10::FunctionSchema* functional_variant(const c10::FunctionSchema& op);

// When the twin's result is like the tensor that the operator in place writes. It may differ in the strides of dimensions of
// one element.
enum class VariantMatch {
  kNever,            // or not known
  kAlways,           // dtype, sizes and strides are self's, whatever the operands are
  kWithoutGradient,  // the same, but if a tensor requires a gradient, backward of the twin raises
  kPointwise,        // if self is floating, and other tensors are of its dtype and broadcast to its sizes
  kContiguous,       // if self is contiguous, and other tensors broadcast to its sizes
};
VariantMatch variant_match(const c10::FunctionSchema& op);

// Whether the backward that LibTorch has for the operator reads its result, so that it raises when the result has been
// written meanwhile. True where it is not known.
bool backward_may_read_result(const c10::FunctionSchema& op);

// Whether the node's only result is a tensor of its own: a new object over new memory, no two elements at one place.
bool produces_new_tensor(const Node& node);

// Whether the node takes no more from a tensor than its sizes, dtype or device.
bool reads_sizes_or_dtype(const Node& node);
// Whether its result tells the strides of a tensor, or how often it has been written.
bool reads_layout_or_version(const Node& node);

// Whether running the node may give a tensor that exists other sizes, strides or storage, as `t_`, `resize_` and `out=` do.
bool may_change_sizes(const Node& node);
// Whether a node of the graph may.
bool may_change_sizes(const Graph& graph);

}  // namespace sconce
