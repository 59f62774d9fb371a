#include "passes/matmul/inline_function.h"

#include "base/assert.h"
#include "passes/insert_node.h"

#include <algorithm>
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
    locate(*copy, node.location());
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

bool is_alternative_to_products(const Node& node) {
  const Block& branch = *node.owning_block();
  const Node* choice = branch.owner();
  if (choice == nullptr || choice->opcode() != Opcode::kIf || choice->block(1) != &branch) {
    return false;
  }
  if (!std::ranges::all_of(branch.return_node()->inputs(), [&](const Value* result) { return result->node() == &node; })) {
    return false;
  }
  bool has_product = false;
  for_each_node(*choice->block(0), [&](const Node* other) { has_product |= other->op().product.has_value(); });
  return has_product;
}

}  // namespace sconce
