// Short forms for the nodes that differentiation inserts.
#pragma once

#include "ir/graph.h"

#include <c10/util/ArrayRef.h>

namespace sconce {

// Inserts a node with one result, a tensor unless `type` says otherwise, before `position`.
Value* insert_node(c10::Symbol kind, c10::ArrayRef<Value*> inputs, Node* position, c10::TypePtr type = nullptr);
// The same for aten::size(tensor) and aten::size(tensor, dim).
Value* insert_sizes(Value* tensor, Node* position);
Value* insert_size(Value* tensor, Value* dim, Node* position);
// prim::ListConstruct of tensors, or of integers.
Value* insert_tensor_list(c10::ArrayRef<Value*> tensors, Node* position);
Value* insert_int_list(c10::ArrayRef<Value*> numbers, Node* position);
// prim::ListUnpack into `count` tensors, or prim::TupleUnpack into the tuple's elements.
c10::ArrayRef<Value*> insert_list_unpack(Value* list, size_t count, Node* position);
c10::ArrayRef<Value*> insert_tuple_unpack(Value* tuple, Node* position);

}  // namespace sconce
