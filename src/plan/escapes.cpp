#include "plan/escapes.h"

namespace sconce {

std::unordered_set<const Value*> find_escaping_values(const Graph& graph, const AliasSets& aliases, bool autograd_runs) {
  std::unordered_set<AliasSets::Set> escaping_sets = {aliases.wildcard()};
  for (const Value* output : graph.outputs()) {
    // An output hands on what it contains, and what that contains.
    for (AliasSets::Set set = aliases.set_of(*output); set != AliasSets::kNone && escaping_sets.insert(set).second;) {
      set = aliases.contents_of(set);
    }
  }
  std::unordered_set<const Value*> escaping;
  const auto visit_values = [&](c10::ArrayRef<Value*> values, bool seen_by_autograd) {
    for (const Value* value : values) {
      const AliasSets::Set set = aliases.set_of(*value);
      if (set != AliasSets::kNone && (escaping_sets.contains(set) || seen_by_autograd)) {
        escaping.insert(value);
      }
    }
  };
  visit_values(graph.inputs(), false);
  for_each_node(graph.body(), [&](Node* node) {
    const bool seen_by_autograd = autograd_runs && node->schema() != nullptr;
    visit_values(node->inputs(), seen_by_autograd);
    visit_values(node->outputs(), seen_by_autograd);
    for (const Block* block : node->blocks()) {
      visit_values(block->params(), false);
    }
  });
  return escaping;
}

}  // namespace sconce
