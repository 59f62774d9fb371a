#include "autodiff/build_nodes.h"

#include "base/assert.h"
#include "ir/schema_match.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

Node* insert(c10::Symbol kind, c10::ArrayRef<Value*> inputs, size_t outputs, Node* position) {
  Node* node = position->graph().create(kind, inputs, outputs);
  node->insert_before(position);
  return node;
}

void resolve_inserted(Node& node) {
  const bool is_resolved = resolve(node);
  SCONCE_ASSERT(is_resolved, "no overload of ", node.kind().toQualString(), " takes what differentiation gives it");
}

}  // namespace

Value* insert_node(c10::Symbol kind, c10::ArrayRef<Value*> inputs, Node* position, c10::TypePtr type) {
  Node* node = insert(kind, inputs, 0, position);
  Value* result = node->add_output(type != nullptr ? std::move(type) : c10::TensorType::get());
  resolve_inserted(*node);
  return result;
}

Value* insert_sizes(Value* tensor, Node* position) {
  return insert_node(aten::size, {tensor}, position, c10::ListType::ofInts());
}

Value* insert_size(Value* tensor, Value* dim, Node* position) {
  return insert_node(aten::size, {tensor, dim}, position, c10::IntType::get());
}

Value* insert_tensor_list(c10::ArrayRef<Value*> tensors, Node* position) {
  return insert_node(prim::ListConstruct, tensors, position, c10::ListType::ofTensors());
}

Value* insert_int_list(c10::ArrayRef<Value*> numbers, Node* position) {
  return insert_node(prim::ListConstruct, numbers, position, c10::ListType::ofInts());
}

c10::ArrayRef<Value*> insert_list_unpack(Value* list, size_t count, Node* position) {
  return insert(prim::ListUnpack, {list}, count, position)->outputs();
}

c10::ArrayRef<Value*> insert_tuple_unpack(Value* tuple, Node* position) {
  Node* unpack = insert(prim::TupleUnpack, {tuple}, 0, position);
  for (const c10::TypePtr& element : tuple->type()->containedTypes()) {
    unpack->add_output(element);
  }
  return unpack->outputs();
}

}  // namespace sconce
