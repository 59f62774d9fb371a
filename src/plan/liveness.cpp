#include "plan/liveness.h"

namespace sconce {
namespace {

const std::vector<const Value*> kNothing;

// The values used by the node's blocks, nested ones included.
std::unordered_set<const Value*> values_used_inside(const Node& node) {
  std::unordered_set<const Value*> used;
  for (const Block* block : node.blocks()) {
    for_each_node(*block, [&](Node* nested) {
      used.insert(nested->inputs().begin(), nested->inputs().end());
      for (const Block* inner : nested->blocks()) {
        used.insert(inner->returns().begin(), inner->returns().end());
      }
    });
    used.insert(block->returns().begin(), block->returns().end());
  }
  return used;
}

}  // namespace

Liveness::Liveness(const Graph& graph) { visit_block(graph.body(), {}); }

const std::vector<const Value*>& Liveness::dead_after(const Node& node) const {
  const auto found = dead_after_.find(&node);
  return found == dead_after_.end() ? kNothing : found->second;
}

const std::vector<const Value*>& Liveness::dead_on_entry(const Block& block) const {
  const auto found = dead_on_entry_.find(&block);
  return found == dead_on_entry_.end() ? kNothing : found->second;
}

// `owned`: the values that may die in this block. `live`: those used later; grows as the walk goes backward.
void Liveness::mark_last_uses(const Node& node, size_t first_input, const Values& owned, Values& live,
                              const Values& used_inside) {
  for (size_t i = node.inputs().size(); i-- > first_input;) {
    const Value* value = node.input(i);
    if (owned.contains(value) && !used_inside.contains(value) && live.insert(value).second) {
      last_uses_.insert({&node, i});
    }
  }
}

void Liveness::visit_block(const Block& block, const Values& handed_down) {
  Values owned = handed_down;
  owned.insert(block.params().begin(), block.params().end());
  for (const Node* node : block.nodes()) {
    owned.insert(node->outputs().begin(), node->outputs().end());
  }
  Values live;
  mark_last_uses(*block.return_node(), 0, owned, live, {});
  for (const Node* node = block.last(); node != nullptr; node = node->previous()) {
    for (const Value* output : node->outputs()) {
      if (!live.contains(output)) {
        dead_after_[node].push_back(output);
      }
    }
    if (node->blocks().empty()) {
      mark_last_uses(*node, 0, owned, live, {});
      continue;
    }
    const Values used_inside = values_used_inside(*node);
    Values dying_inside;
    for (const Value* value : used_inside) {
      if (owned.contains(value) && !live.contains(value)) {
        dying_inside.insert(value);
      }
    }
    if (node->kind() == prim::If) {
      for (const Block* branch : node->blocks()) {
        visit_block(*branch, dying_inside);
      }
    } else {
      for (const Block* body : node->blocks()) {
        visit_block(*body, {});
      }
      std::vector<const Value*>& dead = dead_after_[node];
      dead.insert(dead.end(), dying_inside.begin(), dying_inside.end());
    }
    mark_last_uses(*node, 0, owned, live, used_inside);
    live.insert(dying_inside.begin(), dying_inside.end());
  }
  for (const Value* value : handed_down) {
    if (!live.contains(value)) {
      dead_on_entry_[&block].push_back(value);
    }
  }
  for (const Value* param : block.params()) {
    if (!live.contains(param)) {
      dead_on_entry_[&block].push_back(param);
    }
  }
}

}  // namespace sconce
