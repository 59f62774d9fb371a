// Which values code outside the graph may hold after the run.
#pragma once

#include "ir/graph.h"

#include <unordered_map>

namespace sconce {

class Visibility {
 public:
  bool is_visible(const Value& value);
  // Returns whether the value is visible because of this use.
  bool exposes(const Use& use);

 private:
  bool any_output_is_visible(const Node& node);
  bool returns_visible(const Node& owner, size_t index);

  std::unordered_map<const Value*, bool> known_;
};

}  // namespace sconce
