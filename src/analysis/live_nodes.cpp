#include "analysis/live_nodes.h"

#include "analysis/effects.h"

namespace sconce {

LiveNodes::LiveNodes(const Graph& graph) {
  need_all(graph.outputs());
  need_effects(graph.body());
  while (!pending_.empty()) {
    const Value* value = pending_.back();
    pending_.pop_back();
    follow(*value);
  }
}

void LiveNodes::need(const Value* value) {
  if (values_.insert(value).second) {
    pending_.push_back(value);
  }
}

void LiveNodes::need_all(c10::ArrayRef<Value*> values) {
  for (const Value* value : values) {
    need(value);
  }
}

// The node runs, so the nodes around it run, and the values that decide whether they do are live.
void LiveNodes::need_node(const Node* node) {
  for (; node != nullptr && nodes_.insert(node).second; node = node->owning_block()->owner()) {
    if (node->kind() == prim::If) {
      need(node->input(0));
    } else if (node->kind() == prim::Loop) {
      need(node->input(0));
      need(node->input(1));
      need(node->block(0)->returns()[0]);
    } else {
      need_all(node->inputs());
      for (const Block* block : node->blocks()) {
        need_all(block->returns());
      }
    }
  }
}

void LiveNodes::need_effects(const Block& block) {
  for_each_node(block, [&](const Node* node) {
    if (effects_of(*node).any()) {
      need_node(node);
    }
  });
}

void LiveNodes::follow(const Value& value) {
  const Node& node = *value.node();
  if (node.kind() == prim::Param) {
    const Node* owner = node.owning_block()->owner();
    if (owner != nullptr) {
      need_node(owner);
      if (owner->kind() == prim::Loop && value.offset() > 0) {
        need(owner->input(value.offset() + 1));
        need(owner->block(0)->returns()[value.offset()]);
      }
    }
    return;
  }
  need_node(&node);
  if (node.kind() == prim::If) {
    need(node.block(0)->returns()[value.offset()]);
    need(node.block(1)->returns()[value.offset()]);
  } else if (node.kind() == prim::Loop) {
    need(node.input(value.offset() + 2));
    need(node.block(0)->returns()[value.offset() + 1]);
  }
}

}  // namespace sconce
