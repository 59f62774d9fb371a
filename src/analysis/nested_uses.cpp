#include "analysis/nested_uses.h"

#include "analysis/nesting.h"

#include <algorithm>

namespace sconce {

void for_each_operand(const Node& node, c10::function_ref<void(Value*)> visit) {
  for (Value* input : node.inputs()) {
    visit(input);
  }
  const auto visit_outer = [&](Value* value) {
    if (!is_inside(value->node(), node)) {
      visit(value);
    }
  };
  for (const Block* block : node.blocks()) {
    for (const Node* nested : block->nodes()) {
      for_each_operand(*nested, visit_outer);
    }
    for (Value* result : block->returns()) {
      visit_outer(result);
    }
  }
}

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
