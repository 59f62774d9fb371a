// LiveNodes: which nodes and values of a graph something uses.
#pragma once

#include "base/flat_map.h"
#include "ir/graph.h"

#include <vector>

namespace sconce {

// A node is live if it has an effect, or a live node or the graph's outputs use a value that it computes. A value that a
// loop only carries for itself is not live. Marks go backward, from effects and outputs.
class LiveNodes {
 public:
  explicit LiveNodes(const Graph& graph);

  bool contains(const Node& node) const { return nodes_.contains(&node); }
  bool contains(const Value& value) const { return values_.contains(&value); }

 private:
  void need(const Value* value);
  void need_all(c10::ArrayRef<Value*> values);
  void need_node(const Node* node);
  void need_effects(const Block& block);
  void follow(const Value& value);

  FlatSet<const Node*> nodes_;
  FlatSet<const Value*> values_;
  std::vector<const Value*> pending_;
};

}  // namespace sconce
