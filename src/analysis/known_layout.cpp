#include "analysis/known_layout.h"

#include "analysis/effects.h"

namespace sconce {
namespace {

bool distinguishes_equal_tensors(const Graph& graph) {
  bool may_differentiate = false;
  for_each_node(graph.body(), [&](Node* node) { may_differentiate = may_differentiate || node->op().differentiates; });
  return may_differentiate || may_change_sizes(graph);
}

}  // namespace

bool for_each_replaceable_result(const Graph& graph, c10::function_ref<bool(Node&)> visit) {
  if (distinguishes_equal_tensors(graph)) {
    return false;
  }
  bool changed = false;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->schema() != nullptr && node->outputs().size() == 1 && !node->inputs().empty()) {
      changed |= visit(*node);
    }
  });
  return changed;
}

}  // namespace sconce
