#include "training/step/step_positions.h"

#include "analysis/effects.h"

#include <algorithm>

namespace sconce {

StepPositions::StepPositions(const Graph& graph) : graph_(graph), aliases_(graph) {
  for (Node* node : graph.body().nodes()) {
    positions_[node] = nodes_.size();
    if (may_raise_by_elements(*node)) {
      first_ = nodes_.size() + 1;
    }
    nodes_.push_back(node);
  }
  for_each_node(graph.body(), [&](const Node* node) {
    if (!node->op().is_language() && effects_of(*node).writes) {
      writes_.push_back(node);
    }
  });
}

size_t StepPositions::after_writes(const Value& value) const {
  size_t after = value.node() == value.graph().body().param_node() ? 0 : after_node(*value.node());
  for (const Node* node : writes_) {
    if (aliases_.may_write(*node, value)) {
      after = std::max(after, after_node(*node));
    }
  }
  return after;
}

size_t StepPositions::after_uses(const Value& input) const {
  size_t after = 0;
  FlatSet<const Value*> seen = {&input};
  std::vector<const Value*> members = {&input};
  const auto add = [&](c10::ArrayRef<Value*> values) {
    for (const Value* value : values) {
      if (aliases_.may_alias(*value, input) && seen.insert(value).second) {
        members.push_back(value);
      }
    }
  };
  for (size_t i = 0; i < members.size(); ++i) {
    for (const Use& use : members[i]->uses()) {
      const Node* user = use.user->kind() == prim::Return ? use.user->owning_block()->owner() : use.user;
      if (user == nullptr) {
        return nodes_.size();  // the graph returns it
      }
      after = std::max(after, after_node(*user));
      add(user->outputs());
      for (const Block* block : user->blocks()) {
        add(block->params());
      }
    }
  }
  return after;
}

size_t StepPositions::after_node(const Node& node) const {
  const Node* around = &node;
  while (around->owning_block()->owner() != nullptr) {
    around = around->owning_block()->owner();
  }
  return positions_.at(around) + 1;
}

}  // namespace sconce
