// Which values code outside the graph may hold after the run.
#pragma once

#include "ir/graph.h"

#include <unordered_map>

namespace sconce {

// A value is visible if the graph returns it, or a container that holds it, or if a node with effects or a call gets it.
// User code may then hook it, or ask for its gradient. What views of it show does not count: a view is another tensor.
class Visibility {
 public:
  // Answers are kept: the graph must not change in between.
  bool is_visible(const Value& value);
  // Returns whether the value is visible because of this use.
  bool exposes(const Use& use);

 private:
  bool any_output_is_visible(const Node& node);
  bool returns_visible(const Node& owner, size_t index);

  std::unordered_map<const Value*, bool> known_;
};

}  // namespace sconce
