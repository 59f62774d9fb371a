// Short forms for the nodes that differentiation inserts.
#pragma once

#include "ir/graph.h"

#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>

namespace sconce {

// Inserts a node with one result, a tensor unless `type` says otherwise, before `position`.
Value* insert_node(c10::Symbol kind, c10::ArrayRef<Value*> inputs, Node* position, c10::TypePtr type = nullptr);
// The same for aten::clone(tensor), aten::size(tensor) and aten::size(tensor, dim).
Value* insert_clone(Value* tensor, Node* position);
Value* insert_sizes(Value* tensor, Node* position);
Value* insert_size(Value* tensor, Value* dim, Node* position);
// prim::ListConstruct of tensors, or of integers.
Value* insert_tensor_list(c10::ArrayRef<Value*> tensors, Node* position);
Value* insert_int_list(c10::ArrayRef<Value*> numbers, Node* position);
// prim::ListUnpack into `count` tensors, or prim::TupleUnpack into the tuple's elements.
c10::ArrayRef<Value*> insert_list_unpack(Value* list, size_t count, Node* position);
c10::ArrayRef<Value*> insert_tuple_unpack(Value* tuple, Node* position);

// Returns the place right after the node, to insert nodes before.
Node* position_after(const Node& node);
// Returns the node after `before` in the block; the block's first if `before` is null. Null at the end.
Node* node_after(const Node* before, const Block& block);
// An empty list of values of the type, and aten::append(list, element).
Value* insert_empty_list(c10::TypePtr element, Node* position);
void insert_append(Value* list, Value* element, Node* position);
// aten::__getitem__(list, index).
Value* insert_element(Value* list, Value* index, Node* position);
// Gives the node, and those nested in it, a source location, if they have none.
void set_missing_location(Node& node, const SourceLocationPtr& location);
// prim::AutogradAdd of two gradients of the value.
Value* insert_sum_of_gradients(const Value& of, Value* one, Value* other, Node* position);
// Gives a gradient what is known of the value that it belongs to. It holds where the gradient is a defined tensor.
void set_facts_of_gradient(Value& gradient, const Value& of);
// Zeros like a tensor whose dtype is known, of the given sizes.
Value* insert_zeros(Value* tensor, Value* sizes, Node* position);
// prim::AutogradZero: an undefined tensor.
Value* insert_undefined(Node* position);
// A bool: one of the gradients is a defined tensor.
Value* insert_any_defined(c10::ArrayRef<Value*> gradients, Node* position);
// The first value if the condition holds, else what `other` inserts before the position that it is given.
Value* insert_choice(Value* condition, Value* value, c10::function_ref<Value*(Node* position)> other, Node* position);

}  // namespace sconce
