// The last use of each value.
#pragma once

#include "ir/graph.h"

#include <unordered_map>
#include <unordered_set>
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
  struct UseHash {
    size_t operator()(const std::pair<const Node*, size_t>& use) const {
      return std::hash<const void*>{}(use.first) * 31 + use.second;
    }
  };
  using Values = std::unordered_set<const Value*>;
  void visit_block(const Block& block, const Values& handed_down);
  void mark_last_uses(const Node& node, size_t first_input, const Values& owned, Values& live, const Values& used_inside);

  std::unordered_set<std::pair<const Node*, size_t>, UseHash> last_uses_;
  std::unordered_map<const Node*, std::vector<const Value*>> dead_after_;
  std::unordered_map<const Block*, std::vector<const Value*>> dead_on_entry_;
};

}  // namespace sconce
