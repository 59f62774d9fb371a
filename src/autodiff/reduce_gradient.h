// Gives a gradient the sizes and the dtype of the operand that it belongs to.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Returns the gradient of operand `index` of the node, summed over the dimensions that the operator broadcast, and cast to
// the operand's dtype. Nodes are inserted before `position`. Facts decide most of it; where they do not, the run compares
// sizes.
Value* reduce_gradient(Value* gradient, const Node& node, size_t index, Node* position);

// Returns the gradient, which has the dtype of `result`, in the operand's dtype.
Value* cast_gradient(Value* gradient, const Value& result, Value* operand, Node* position);

}  // namespace sconce
