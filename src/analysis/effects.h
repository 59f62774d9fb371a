// The effects of nodes: everything that running one does besides producing its outputs.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Returns the effects of the node alone, without the blocks nested in it. A constant operand can rule effects out
// (`training=False`). Unresolved operators have unknown effects.
Effects effects_of(const Node& node);

// Returns whether the operator may write the memory of its operand `index`: the schema or the operator's row says so, and
// the other operands do not rule it out. False without a schema.
bool may_write_operand(const Node& node, size_t index);

// Returns whether running the node, or a node nested in it, may raise. False only for nodes known not to.
bool may_raise(const Node& node);

// Returns whether the node, or a node nested in it, may raise because of the elements of tensors, although it took tensors
// of these forms before. False only for nodes known not to.
bool may_raise_by_elements(const Node& node);

// Returns whether the node must stay although its outputs are unused: it, or a node nested in it, has an effect.
bool has_effects(const Node& node);

// Returns whether the operator may leave a hold of its operands: in its results, or in what it keeps.
bool may_hold_operands(const Op& op);

// Returns whether the node's only result is a new tensor: a new object over new memory whose elements do not overlap.
bool produces_new_tensor(const Node& node);

// Returns whether the node casts to fewer bits, and its result may require a gradient. One such cast in place of several
// would add up their gradients in those bits.
bool narrows_gradients(const Node& node);

// Returns whether the node's result may require a gradient although no operand does (`torch.tensor(…, requires_grad=True)`).
bool introduces_grad(const Node& node);

// Returns whether a value of the graph may require a gradient although no input and no constant tensor does.
bool introduces_grad(const Graph& graph);

// Returns whether a node of the graph may change the sizes, strides or storage of an existing tensor.
bool may_change_sizes(const Graph& graph);

// Returns whether the graph marks tensors as requiring a gradient: `requires_grad_`, or a factory that is asked for it.
bool marks_tensors(const Graph& graph);

// Returns why calls of the graph can never be recorded, because of a node that is no operator for a tracer: it prints, or
// reads the gradient of a tensor. Null if there is none.
const char* why_never_recorded(const Graph& graph);

}  // namespace sconce
