#include "passes/matmul/inline_function.h"

#include "base/assert.h"

#include <vector>

namespace sconce {

void inline_function(Node& node, const Graph& body) {
  Graph& graph = node.graph();
  const Node* before = node.previous();
  ValueMap values;
  for (size_t i = 0; i < body.inputs().size(); ++i) {
    values[body.inputs()[i]] = node.input(i);
  }
  const std::vector<Value*> results = graph.copy_nodes(body.body(), &node, values);
  for (Node* copy = before != nullptr ? before->next() : node.owning_block()->first(); copy != &node; copy = copy->next()) {
    copy->set_location(node.location());
    for (const Block* block : copy->blocks()) {
      for_each_node(*block, [&](Node* nested) { nested->set_location(node.location()); });
    }
  }
  Node* const tuple = node.outputs().size() > 1 ? results[0]->node() : nullptr;
  SCONCE_ASSERT(tuple == nullptr || tuple->opcode() == Opcode::kTupleConstruct, "the function constructs no tuple");
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    node.output(i)->replace_all_uses_with(tuple != nullptr ? tuple->input(i) : results[0]);
  }
  node.erase();
  if (tuple != nullptr) {
    tuple->erase();
  }
}

}  // namespace sconce
