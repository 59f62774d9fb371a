#include "passes/required/eliminate_dead_nodes.h"

#include "analysis/effects.h"
#include "base/flat_map.h"

#include <vector>

namespace sconce {
namespace {

// Marks live nodes backward, from effects and the graph's outputs, then removes the rest. A value that a loop only
// carries for itself is never marked.
class DeadNodes {
 public:
  explicit DeadNodes(Graph& graph) {
    need_all(graph.outputs());
    need_effects(graph.body());
    while (!pending_.empty()) {
      const Value* value = pending_.back();
      pending_.pop_back();
      follow(*value);
    }
  }

  bool sweep(Graph& graph) {
    // Removes unused outputs of blocks first, so that all users of a dead value are dead nodes. Then removes dead
    // nodes, last first, and then the outputs and params that are now unused.
    for_each_node(graph.body(), [&](Node* node) { unlink_dead_outputs(*node); });
    const bool erased = erase_dead_nodes(graph.body());
    for (auto each = dead_outputs_.rbegin(); each != dead_outputs_.rend(); ++each) {
      each->node->remove_output(each->index);
      if (each->node->kind() == prim::Loop) {
        each->node->block(0)->remove_param(each->index + 1);
      }
    }
    return erased || !dead_outputs_.empty();
  }

 private:
  bool is_needed(const Node& node) const { return nodes_.contains(&node); }

  void need(const Value* value) {
    if (values_.insert(value).second) {
      pending_.push_back(value);
    }
  }
  void need_all(c10::ArrayRef<Value*> values) {
    for (const Value* value : values) {
      need(value);
    }
  }

  // The node runs, so the nodes around it run, and the values that decide whether they do are live.
  void need_node(const Node* node) {
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

  void need_effects(const Block& block) {
    for_each_node(block, [&](Node* node) {
      if (effects_of(*node).any()) {
        need_node(node);
      }
    });
  }

  void follow(const Value& value) {
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

  // Collects and unlinks the unused outputs of a branch or loop; an output of a loop must be unused in its next iterations,
  // too.
  void unlink_dead_outputs(Node& node) {
    const bool is_loop = node.kind() == prim::Loop;
    if (!is_needed(node) || (!is_loop && node.kind() != prim::If)) {
      return;
    }
    const size_t first = dead_outputs_.size();
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      const bool carried = is_loop && values_.contains(node.block(0)->params()[i + 1]);
      if (!carried && !values_.contains(node.output(i))) {
        dead_outputs_.push_back({&node, i});
      }
    }
    for (size_t at = dead_outputs_.size(); at-- > first;) {
      const size_t index = dead_outputs_[at].index;
      for (Block* block : node.blocks()) {
        block->remove_return(index + (is_loop ? 1 : 0));
      }
      if (is_loop) {
        node.remove_input(index + 2);
      }
    }
  }

  bool erase_dead_nodes(const Block& block) {
    bool changed = false;
    Node* previous = nullptr;
    for (Node* node = block.last(); node != nullptr; node = previous) {
      previous = node->previous();
      if (!is_needed(*node)) {
        node->erase();
        changed = true;
        continue;
      }
      for (const Block* nested : node->blocks()) {
        changed |= erase_dead_nodes(*nested);
      }
    }
    return changed;
  }

  struct Output {
    Node* node;
    size_t index;
  };
  FlatSet<const Node*> nodes_;
  FlatSet<const Value*> values_;
  std::vector<const Value*> pending_;
  std::vector<Output> dead_outputs_;  // for each node in ascending order
};

}  // namespace

bool eliminate_dead_nodes(Graph& graph) { return DeadNodes(graph).sweep(graph); }

}  // namespace sconce
