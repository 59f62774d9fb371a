#include "passes/simplify/hoist_attribute_reads.h"

#include "analysis/memory/assigned_attributes.h"

#include <vector>

namespace sconce {
namespace {

// Moves the node after `position` and the reads that follow that; null: the beginning of the block. Returns whether it
// moved.
bool move_up(Node& node, Node* position) {
  Node* next = position != nullptr ? position->next() : *node.owning_block()->nodes().begin();
  while (next != &node && next->opcode() == Opcode::kGetAttr) {
    next = next->next();
  }
  if (next == &node) {
    return false;
  }
  node.detach();
  node.insert_before(next);
  return true;
}

}  // namespace

bool hoist_attribute_reads(Graph& graph) {
  const AssignedAttributes assigned(graph);
  std::vector<Node*> reads;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->opcode() == Opcode::kGetAttr && !assigned.contains(*node)) {
      reads.push_back(node);
    }
  });
  bool changed = false;
  for (Node* read : reads) {
    Node* object = read->input(0)->node();
    const bool is_made_here = object->owning_block() == read->owning_block() && object->opcode() != Opcode::kParam;
    changed = move_up(*read, is_made_here ? object : nullptr) || changed;
  }
  return changed;
}

}  // namespace sconce
