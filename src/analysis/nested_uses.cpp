#include "analysis/nested_uses.h"

#include <algorithm>

namespace sconce {

bool uses_any(const Node& node, const ValueSet& values) {
  if (values.empty()) {
    return false;
  }
  const auto is_any_of = [&](c10::ArrayRef<Value*> used) {
    return std::any_of(used.begin(), used.end(), [&](const Value* value) { return values.contains(value); });
  };
  bool found = is_any_of(node.inputs());
  for (const Block* block : node.blocks()) {
    found = found || is_any_of(block->returns());
    for (const Node* nested : block->nodes()) {
      found = found || uses_any(*nested, values);
    }
  }
  return found;
}

}  // namespace sconce
