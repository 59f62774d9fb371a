#include "lower/liveness.h"

#include <utility>

namespace sconce {
namespace {

const std::vector<const Value*> kNothing;

}  // namespace

Liveness::Liveness(const Graph& graph) : states_(graph.id_bound()) { visit_block(graph.body(), {}); }

const std::vector<const Value*>& Liveness::dead_after(const Node& node) const {
  const auto found = dead_after_.find(&node);
  return found == dead_after_.end() ? kNothing : found->second;
}

const std::vector<const Value*>& Liveness::dead_on_entry(const Block& block) const {
  const auto found = dead_on_entry_.find(&block);
  return found == dead_on_entry_.end() ? kNothing : found->second;
}

// Returns the values used by the node's blocks, nested ones included, each once.
Liveness::Values Liveness::values_used_inside(const Node& node) {
  Values used;
  const auto add = [&](c10::ArrayRef<Value*> values) {
    for (const Value* value : values) {
      if (std::exchange(state(value).used_inside, &node) != &node) {
        used.push_back(value);
      }
    }
  };
  for (const Block* block : node.blocks()) {
    for_each_node(*block, [&](Node* nested) {
      add(nested->inputs());
      for (const Block* inner : nested->blocks()) {
        add(inner->returns());
      }
    });
    add(block->returns());
  }
  return used;
}

void Liveness::mark_last_uses(const Node& node, BlockNumber owner) {
  for (size_t i = node.inputs().size(); i-- > 0;) {
    State& value = state(node.input(i));
    if (value.owner == owner && value.used_inside != &node && !std::exchange(value.is_live, true)) {
      last_uses_.insert({&node, i});
    }
  }
}

// `handed_down`: values of the enclosing block that may die in this one.
void Liveness::visit_block(const Block& block, const Values& handed_down) {
  const BlockNumber number = ++blocks_;
  const auto own = [&](auto values) {
    for (const Value* value : values) {
      state(value).owner = number;
      state(value).is_live = false;
    }
  };
  own(c10::ArrayRef<const Value*>(handed_down));
  own(block.params());
  for (const Node* node : block.nodes()) {
    own(node->outputs());
  }
  mark_last_uses(*block.return_node(), number);
  for (const Node* node = block.last(); node != nullptr; node = node->previous()) {
    for (const Value* output : node->outputs()) {
      if (!state(output).is_live) {
        dead_after_[node].push_back(output);
      }
    }
    if (node->blocks().empty()) {
      mark_last_uses(*node, number);
      continue;
    }
    Values dying_inside;
    for (const Value* value : values_used_inside(*node)) {
      if (state(value).owner == number && !state(value).is_live) {
        dying_inside.push_back(value);
      }
    }
    mark_last_uses(*node, number);
    if (node->kind() != prim::Loop) {
      for (const Block* branch : node->blocks()) {
        visit_block(*branch, dying_inside);
      }
    } else {
      for (const Block* body : node->blocks()) {
        visit_block(*body, {});
      }
      Values& dead = dead_after_[node];
      dead.insert(dead.end(), dying_inside.begin(), dying_inside.end());
    }
    for (const Value* value : dying_inside) {
      state(value).owner = number;
      state(value).is_live = true;
    }
  }
  const auto add_dead = [&](auto values) {
    for (const Value* value : values) {
      if (!state(value).is_live) {
        dead_on_entry_[&block].push_back(value);
      }
    }
  };
  add_dead(c10::ArrayRef<const Value*>(handed_down));
  add_dead(block.params());
}

}  // namespace sconce
