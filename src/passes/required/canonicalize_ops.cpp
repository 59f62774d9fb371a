#include "passes/required/canonicalize_ops.h"

#include "ir/schema_match.h"

namespace sconce {
namespace {

bool canonicalize(Graph& graph, Node* node) {
  if (node->op().synonym_of.empty()) {
    return false;
  }
  Node* renamed = graph.create(c10::Symbol::fromQualString(std::string(node->op().synonym_of)), node->inputs(), 0);
  const Op* op = match_op(*renamed);
  if (op == nullptr || op->schema->returns().size() != node->outputs().size()) {
    renamed->erase();
    return false;
  }
  renamed->set_op(*op);
  renamed->set_location(node->location());
  for (Value* output : node->outputs()) {
    Value* replacement = renamed->add_output(output->type());
    replacement->set_name(output->name());
    if (output->facts() != nullptr) {
      replacement->set_facts(*output->facts());
    }
    output->replace_all_uses_with(replacement);
  }
  renamed->insert_before(node);
  node->erase();
  return true;
}

}  // namespace

bool canonicalize_ops(Graph& graph) {
  bool changed = false;
  for_each_node(graph.body(), [&](Node* node) { changed |= canonicalize(graph, node); });
  return changed;
}

}  // namespace sconce
