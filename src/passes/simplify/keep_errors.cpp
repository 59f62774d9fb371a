#include "passes/simplify/keep_errors.h"

#include "analysis/effects.h"
#include "analysis/live_nodes.h"

#include <algorithm>
#include <vector>

namespace sconce {
namespace {

// Returns whether the operator may raise although facts know the sizes and dtypes of its results.
bool may_raise_despite_facts(const Node& node) {
  const auto inputs = node.inputs();
  return node.blocks().empty() && !node.kind().is_prim() && node.op().reads == Reads::kElements &&
         may_raise_by_elements(node) &&
         std::any_of(inputs.begin(), inputs.end(), [](const Value* operand) { return is_tensor(*operand); });
}

}  // namespace

bool keep_errors(Graph& graph, c10::function_ref<bool()> pass) {
  std::vector<Node*> live;
  {
    const LiveNodes before(graph);
    for_each_node(graph.body(), [&](Node* node) {
      if (before.contains(*node) && may_raise_despite_facts(*node)) {
        live.push_back(node);
      }
    });
  }
  const bool changed = pass();
  if (!changed || live.empty()) {
    return changed;
  }
  const LiveNodes after(graph);
  for (Node* node : live) {
    if (!after.contains(*node)) {
      node->set_attribute(attr::kKeptError, int64_t{1});
    }
  }
  return changed;
}

}  // namespace sconce
