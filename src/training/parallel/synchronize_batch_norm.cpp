#include "training/parallel/synchronize_batch_norm.h"

#include "ir/schema_match.h"

namespace sconce {

bool synchronize_batch_norm(Graph& graph, const std::string& group) {
  static const c10::Symbol kSynchronized = c10::Symbol::fromQualString("sconce::sync_batch_norm");
  bool changed = false;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() != aten::batch_norm) {
      return;
    }
    std::vector<Value*> operands = node->inputs().vec();
    operands.push_back(graph.insert_constant(group, node));
    Node* const synchronized = graph.create(kSynchronized, operands)->set_location(node->location())->insert_before(node);
    SCONCE_ASSERT(resolve(*synchronized), "sconce::sync_batch_norm does not take what aten::batch_norm takes");
    node->output()->replace_all_uses_with(synchronized->output());
    node->erase();
    changed = true;
  });
  return changed;
}

}  // namespace sconce
