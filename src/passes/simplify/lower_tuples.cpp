#include "passes/simplify/lower_tuples.h"

#include "analysis/memory/object_identity.h"
#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

bool is_tuple(const Value& value) { return value.type()->kind() == c10::TypeKind::TupleType; }

// Returns the node that builds the tuple; null for any other value.
const Node* construction_of(const Value& value) {
  return value.node()->kind() == prim::TupleConstruct ? value.node() : nullptr;
}

// ---- reads ----------------------------------------------------------------------------------------------------------

bool forward_elements(Node& node) {
  const bool reads = node.kind() == prim::TupleUnpack || node.kind() == prim::TupleIndex || node.kind() == prim::TupleSlice;
  const Node* tuple = reads ? construction_of(*node.input(0)) : nullptr;
  if (tuple == nullptr) {
    return false;
  }
  if (node.kind() == prim::TupleUnpack) {
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      node.output(i)->replace_all_uses_with(tuple->input(i));
    }
  } else if (node.kind() == prim::TupleIndex) {
    const auto index = constant_index(*node.input(1), tuple->inputs().size());
    if (!index) {
      return false;
    }
    node.output()->replace_all_uses_with(tuple->input(*index));
  } else {
    const auto begin = static_cast<size_t>(node.attribute_as<int64_t>(c10::attr::beg));
    const auto end = static_cast<size_t>(node.attribute_as<int64_t>(c10::attr::end));
    Node* slice = node.graph().create(prim::TupleConstruct, tuple->inputs().slice(begin, end - begin), 0);
    slice->set_location(node.location())->insert_before(&node);
    slice->add_output(node.output()->type())->set_name(node.output()->name());
    node.output()->replace_all_uses_with(slice->output());
  }
  node.erase();
  return true;
}

// ---- tuples that blocks return --------------------------------------------------------------------------------------

// Builds a tuple of `values` before `position`.
Value* insert_tuple(Node* position, c10::ArrayRef<Value*> values, const c10::TypePtr& type) {
  Node* tuple = position->graph().create(prim::TupleConstruct, values, 0);
  tuple->insert_before(position);
  return tuple->add_output(type);
}

// Returns the elements of a tuple, read before `position`.
std::vector<Value*> insert_unpack(Node* position, Value* tuple) {
  if (const Node* construction = construction_of(*tuple)) {
    return construction->inputs().vec();
  }
  Node* unpack = position->graph().create(prim::TupleUnpack, {tuple}, 0);
  unpack->insert_before(position);
  for (const c10::TypePtr& element : tuple->type()->expectRef<c10::TupleType>().elements()) {
    unpack->add_output(element);
  }
  return unpack->outputs().vec();
}

std::vector<c10::TypePtr> element_types(const Value& tuple) {
  return tuple.type()->expectRef<c10::TupleType>().elements().vec();
}

// Appends the elements after the other results, and builds a tuple of them if the tuple was used.
bool split_branch_outputs(Node& branch) {
  bool changed = false;
  for (size_t i = 0; i < branch.outputs().size();) {
    Value* const output = branch.output(i);
    const bool is_built = construction_of(*branch.block(0)->returns()[i]) != nullptr &&
                          construction_of(*branch.block(1)->returns()[i]) != nullptr;
    if (!is_tuple(*output) || !is_built) {
      ++i;
      continue;
    }
    for (Block* block : branch.blocks()) {
      for (Value* element : insert_unpack(block->return_node(), block->returns()[i])) {
        block->add_return(element);
      }
    }
    std::vector<Value*> elements;
    for (const c10::TypePtr& type : element_types(*output)) {
      elements.push_back(branch.add_output(type));
    }
    if (output->has_uses()) {
      output->replace_all_uses_with(insert_tuple(
          branch.next() != nullptr ? branch.next() : branch.owning_block()->return_node(), elements, output->type()));
    }
    for (Block* block : branch.blocks()) {
      block->remove_return(i);
    }
    branch.remove_output(i);
    changed = true;
  }
  return changed;
}

bool split_loop_values(Node& loop) {
  bool changed = false;
  Block& body = *loop.block(0);
  for (size_t i = 0; i < loop.outputs().size();) {
    Value* const output = loop.output(i);
    const bool is_built =
        construction_of(*loop.input(i + 2)) != nullptr && construction_of(*body.returns()[i + 1]) != nullptr;
    if (!is_tuple(*output) || !is_built) {
      ++i;
      continue;
    }
    Value* const param = body.params()[i + 1];
    const std::vector<c10::TypePtr> types = element_types(*output);
    for (Value* element : insert_unpack(&loop, loop.input(i + 2))) {
      loop.add_input(element);
    }
    for (Value* element : insert_unpack(body.return_node(), body.returns()[i + 1])) {
      body.add_return(element);
    }
    std::vector<Value*> params;
    std::vector<Value*> outputs;
    for (const c10::TypePtr& type : types) {
      params.push_back(body.add_param(type));
      outputs.push_back(loop.add_output(type));
    }
    if (param->has_uses()) {
      param->replace_all_uses_with(
          insert_tuple(body.first() != nullptr ? body.first() : body.return_node(), params, param->type()));
    }
    if (output->has_uses()) {
      output->replace_all_uses_with(
          insert_tuple(loop.next() != nullptr ? loop.next() : loop.owning_block()->return_node(), outputs, output->type()));
    }
    loop.remove_input(i + 2);
    body.remove_return(i + 1);
    body.remove_param(i + 1);
    loop.remove_output(i);
    changed = true;
  }
  return changed;
}

bool lower_in(const Block& block) {
  bool changed = false;
  for (Node* node = block.first(); node != nullptr;) {
    // Split carried tuples first, so that reads in the body are forwarded below.
    if (node->kind() == prim::Loop) {
      changed |= split_loop_values(*node);
    }
    for (const Block* nested : node->blocks()) {
      changed |= lower_in(*nested);
    }
    if (node->kind() == prim::If) {
      changed |= split_branch_outputs(*node);
    } else if (node->kind() == prim::Loop) {
      changed |= split_loop_values(*node);
    }
    Node* const next = node->next();
    changed |= forward_elements(*node);
    node = next;
  }
  return changed;
}

// Removes tuples that have become unused.
bool remove_unused(const Block& block) {
  bool changed = false;
  for (Node* node = block.last(); node != nullptr;) {
    Node* const previous = node->previous();
    for (const Block* nested : node->blocks()) {
      changed |= remove_unused(*nested);
    }
    if (node->kind() == prim::TupleConstruct && !node->output()->has_uses()) {
      node->erase();
      changed = true;
    }
    node = previous;
  }
  return changed;
}

}  // namespace

bool lower_tuples(Graph& graph) {
  if (observes_identity(graph)) {
    return false;
  }
  const bool lowered = lower_in(graph.body());
  return remove_unused(graph.body()) || lowered;
}

}  // namespace sconce
