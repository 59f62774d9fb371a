#include "passes/required/eliminate_dead_nodes.h"

#include "analysis/live_nodes.h"

#include <vector>

namespace sconce {
namespace {

// Removes what is not live. A value that a loop only carries for itself is not.
class DeadNodes {
 public:
  explicit DeadNodes(const Graph& graph) : live_(graph) {}

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
  // Collects and unlinks the unused outputs of a branch or loop; an output of a loop must be unused in its next iterations,
  // too.
  void unlink_dead_outputs(Node& node) {
    const bool is_loop = node.kind() == prim::Loop;
    if (!live_.contains(node) || (!is_loop && node.kind() != prim::If)) {
      return;
    }
    const size_t first = dead_outputs_.size();
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      const bool carried = is_loop && live_.contains(*node.block(0)->params()[i + 1]);
      if (!carried && !live_.contains(*node.output(i))) {
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
      if (!live_.contains(*node)) {
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
  const LiveNodes live_;
  std::vector<Output> dead_outputs_;  // for each node in ascending order
};

}  // namespace

bool eliminate_dead_nodes(Graph& graph) { return DeadNodes(graph).sweep(graph); }

}  // namespace sconce
