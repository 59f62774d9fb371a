// The last use of each value.
#pragma once

#include "base/flat_map.h"
#include "ir/graph.h"

#include <vector>

namespace sconce {

// A value dies at exactly one place on every path through the graph:
//
//   - as an input of a node, or of a block's return node: `is_last_use`
//   - after a node, if it is an unused output, or a value from outside a prim::Loop that is used only in the loop
//   - on entry to a branch, if it dies in the other branch
//
// A value from outside a loop never dies in the loop's body, because the next iteration may use it.
class Liveness {
 public:
  explicit Liveness(const Graph& graph);

  // Returns whether an input is a last use. If a node has several equal inputs, only the last of them can be.
  bool is_last_use(const Node& node, size_t input) const { return last_uses_.contains({&node, input}); }
  const std::vector<const Value*>& dead_after(const Node& node) const;
  const std::vector<const Value*>& dead_on_entry(const Block& block) const;

 private:
  using Values = std::vector<const Value*>;
  using BlockNumber = uint32_t;
  struct UseHash {
    size_t operator()(const std::pair<const Node*, size_t>& use) const {
      return std::hash<const void*>{}(use.first) * 31 + use.second;
    }
  };
  // The state of a value in the backward walk. The block in which a value may die owns it.
  struct State {
    BlockNumber owner = 0;  // 0: not yet visited
    bool is_live = false;   // whether a later node of the owner uses it
    const Node* used_inside = nullptr;
  };

  State& state(const Value* value) { return states_[value->id()]; }
  void visit_block(const Block& block, const Values& handed_down);
  Values values_used_inside(const Node& node);
  void mark_last_uses(const Node& node, BlockNumber owner);

  std::vector<State> states_;  // by the ids of values
  BlockNumber blocks_ = 0;
  FlatSet<std::pair<const Node*, size_t>, UseHash> last_uses_;
  FlatMap<const Node*, Values> dead_after_;
  FlatMap<const Block*, Values> dead_on_entry_;
};

}  // namespace sconce
