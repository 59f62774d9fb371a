#include "passes/required/canonicalize_ops.h"

#include "ir/schema_match.h"
#include "ops/synonyms.h"

namespace sconce {
namespace {

bool canonicalize(Graph& graph, Node* node) {
  const auto name = canonical_name(node->kind());
  if (!name) {
    return false;
  }
  Node* renamed = graph.create(*name, node->inputs(), 0);
  const c10::FunctionSchema* schema = match_schema(*renamed);
  if (schema == nullptr || schema->returns().size() != node->outputs().size()) {
    renamed->erase();
    return false;
  }
  renamed->set_schema(schema);
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
