#include "autodiff/joint/build_nodes.h"

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

Value* insert_clone(Value* tensor, Node* position) {
  return insert_node(aten::clone, {tensor, position->graph().insert_constant(c10::IValue(), position)}, position);
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

Node* node_after(const Node* before, const Block& block) { return before == nullptr ? block.first() : before->next(); }

Node* position_after(const Node& node) { return node.next() != nullptr ? node.next() : node.owning_block()->return_node(); }

Value* insert_empty_list(c10::TypePtr element, Node* position) {
  return insert_node(prim::ListConstruct, {}, position, c10::ListType::create(std::move(element)));
}

void insert_append(Value* list, Value* element, Node* position) {
  insert_node(aten::append, {list, element}, position, list->type());
}

Value* insert_element(Value* list, Value* index, Node* position) {
  return insert_node(aten::__getitem__, {list, index}, position, list->type()->expectRef<c10::ListType>().getElementType());
}

void set_missing_location(Node& node, const SourceLocationPtr& location) {
  const auto set = [&](Node* each) { each->set_location(each->location() == nullptr ? location : each->location()); };
  set(&node);
  for (const Block* block : node.blocks()) {
    for_each_node(*block, set);
  }
}

Value* insert_sum_of_gradients(const Value& of, Value* one, Value* other, Node* position) {
  Value* sum = insert_node(prim::AutogradAdd, {one, other}, position);
  set_facts_of_gradient(*sum, of);
  return sum;
}

void set_facts_of_gradient(Value& gradient, const Value& of) {
  if (of.facts() == nullptr) {
    return;
  }
  TensorFacts facts = *of.facts();
  facts.forget_strides();
  facts.requires_grad.reset();
  gradient.set_facts(std::move(facts));
}

Value* insert_zeros(Value* tensor, Value* sizes, Node* position) {
  static const c10::Symbol kZeros = c10::Symbol::fromQualString("aten::zeros");
  Graph& graph = position->graph();
  const TensorFacts* facts = tensor->facts();
  SCONCE_ASSERT(facts != nullptr && facts->dtype, "zeros like a tensor of unknown dtype");
  Value* dtype = graph.insert_constant(static_cast<int64_t>(*facts->dtype), position);
  Value* device = facts->device ? graph.insert_constant(*facts->device, position)
                                : insert_node(prim::device, {tensor}, position, c10::DeviceObjType::get());
  Value* none = graph.insert_constant(c10::IValue(), position);
  return insert_node(kZeros, {sizes, dtype, none, device, none}, position);
}

Value* insert_undefined(Node* position) { return insert_node(prim::AutogradZero, {}, position); }

Value* insert_any_defined(c10::ArrayRef<Value*> gradients, Node* position) {
  return insert_node(prim::AutogradAnyNonZero, gradients, position, c10::BoolType::get());
}

Value* insert_choice(Value* condition, Value* value, c10::function_ref<Value*(Node* position)> other, Node* position) {
  Node* choice = insert(prim::If, {condition}, 0, position);
  choice->add_block()->add_return(value);
  Block* otherwise = choice->add_block();
  otherwise->add_return(other(otherwise->return_node()));
  return choice->add_output(value->type());
}

}  // namespace sconce
