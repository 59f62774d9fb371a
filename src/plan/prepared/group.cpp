#include "plan/prepared/group.h"

#include "base/flat_map.h"

#include <algorithm>

namespace sconce {
namespace {

// Adds the write of an operator in place. Its target is an operand, or what an earlier one returned; else the memory is the
// group's own.
void add_write(NodeGroup& group, const Node& node) {
  const Value* target = node.input(0);
  const auto again = std::find_if(group.writes.begin(), group.writes.end(),
                                  [&](const NodeGroup::Write& write) { return write.value == target; });
  const auto operand = std::find(group.operands.begin(), group.operands.end(), target);
  if (again != group.writes.end()) {
    again->value = node.output();
    ++again->count;
  } else if (operand != group.operands.end()) {
    group.writes.push_back({static_cast<size_t>(operand - group.operands.begin()), node.output(), 1});
  }
}

}  // namespace

NodeGroup group_of(const Node& kernel) {
  const Block& block = *kernel.block(0);
  NodeGroup group;
  FlatSet<const Value*> seen;
  for (const Node* node : block.nodes()) {
    group.nodes.push_back(node);
    for (const Value* input : node->inputs()) {
      const bool is_known =
          input->node()->opcode() == Opcode::kConstant && input->type()->kind() != c10::TypeKind::TensorType;
      if (input->node()->owning_block() != &block && !is_known && seen.insert(input).second) {
        group.operands.push_back(input);
      }
    }
    if (writes_in_place(*node)) {
      add_write(group, *node);
    }
  }
  group.results.assign(block.returns().begin(), block.returns().end());
  return group;
}

std::string names_of(const NodeGroup& group) {
  std::string names;
  for (const Node* node : group.nodes) {
    if (node->opcode() != Opcode::kListUnpack) {
      names += (names.empty() ? "" : " ") + std::string(node->kind().toUnqualString());
    }
  }
  return names;
}

}  // namespace sconce
