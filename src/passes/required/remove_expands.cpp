#include "passes/required/remove_expands.h"

namespace sconce {

bool remove_expands(Graph& graph) {
  bool changed = false;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() != aten::expand) {
      return;
    }
    const Value* implicit = node->named_input("implicit");
    const auto* constant = implicit == nullptr ? nullptr : implicit->constant();
    if (constant && constant->isBool() && constant->toBool()) {
      node->output()->replace_all_uses_with(node->input(0));
      node->erase();
      changed = true;
    }
  });
  return changed;
}

}  // namespace sconce
