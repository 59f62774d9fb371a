#include "passes/simplify/keep_errors.h"

#include "analysis/effects.h"
#include "analysis/live_nodes.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <vector>

namespace sconce {
namespace {

bool has_tensors(const Value* value) { return is_tensor(*value) || *value->type() == *c10::ListType::ofTensors(); }

// Returns whether the operator may raise although facts know the sizes or dtypes of its results: facts do not ask whether it
// takes its operands. Reads of numbers raise nothing else.
bool may_raise_despite_facts(const Node& node) {
  return node.blocks().empty() && !node.kind().is_prim() && std::ranges::any_of(node.inputs(), has_tensors) &&
         std::ranges::any_of(node.outputs(), has_tensors) && may_raise(node);
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
