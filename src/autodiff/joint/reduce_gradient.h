// The contract of gradients between operators: each has the sizes and the dtype of the operand that it belongs to.
//
// Autograd's engine sees to it for the gradients of a node. Within a differentiable subgraph there is no engine, and the
// next text computes with what this one gives. Texts need not care: what they give passes through here. The sums and casts
// that facts show to change nothing are removed (passes/simplify/peephole.h).
#pragma once

#include "ir/graph.h"

#include <c10/core/ScalarType.h>

#include <optional>

namespace sconce {

// Returns the gradient of operand `index` of the node, summed to the operand's sizes and cast to its dtype. Nodes are
// inserted before `position`.
Value* reduce_gradient(Value* gradient, const Node& node, size_t index, Node* position);

// Returns the gradient, whose dtype is `from`, in the operand's dtype.
Value* cast_gradient(Value* gradient, std::optional<c10::ScalarType> from, Value* operand, Node* position);

}  // namespace sconce
