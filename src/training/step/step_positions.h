// StepPositions: where the ending of a step may stand in the body of its graph.
#pragma once

#include "analysis/memory/alias_sets.h"
#include "base/flat_map.h"
#include "ir/graph.h"

#include <cstddef>
#include <vector>

namespace sconce {

// A position is the number of nodes of the body before it. Valid until the graph changes.
class StepPositions {
 public:
  explicit StepPositions(const Graph& graph);

  // Returns the node before which to insert at the position.
  Node* at(size_t position) const { return position < nodes_.size() ? nodes_[position] : graph_.body().return_node(); }
  // Returns the first position after which no node raises because of elements.
  size_t first_after_raises() const { return first_; }
  // Returns the first position at which the tensor has its final elements.
  size_t after_writes(const Value& value) const;
  // Returns the position after the last read of the input's memory. Requires that no other input shares it.
  size_t after_uses(const Value& input) const;
  size_t end() const { return nodes_.size(); }

 private:
  size_t after_node(const Node& node) const;

  const Graph& graph_;
  const AliasSets aliases_;
  FlatMap<const Node*, size_t> positions_;
  std::vector<Node*> nodes_;
  std::vector<const Node*> writes_;
  size_t first_ = 0;
};

}  // namespace sconce
