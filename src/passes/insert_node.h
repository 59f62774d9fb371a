// Inserts nodes before a node. They get its source location.
#pragma once

#include "ir/graph.h"
#include "ir/schema_match.h"

#include <ATen/core/jit_type.h>

#include <utility>

namespace sconce {

// Gives the node, and those nested in it, a source location.
inline void locate(Node& node, const SourceLocationPtr& location) {
  node.set_location(location);
  for (const Block* block : node.blocks()) {
    for_each_node(*block, [&](Node* nested) { nested->set_location(location); });
  }
}

// Inserts an operator with one result, a tensor or a value of `type`.
inline Value* insert_operator(c10::Symbol kind, c10::ArrayRef<Value*> operands, Node& position, TensorFacts facts = {},
                              const c10::TypePtr& type = c10::TensorType::get()) {
  Node* node = position.graph().create(kind, operands, 0);
  Value* result = node->add_output(type);
  resolve(*node);
  node->set_location(position.location())->insert_before(&position);
  if (!facts.empty()) {
    result->set_facts(std::move(facts));
  }
  return result;
}

inline Value* insert_list(c10::ArrayRef<Value*> elements, const c10::TypePtr& type, Node& position) {
  Node* list = position.graph().create(prim::ListConstruct, elements, 0);
  list->set_location(position.location())->insert_before(&position);
  return list->add_output(c10::ListType::create(type));
}

}  // namespace sconce
