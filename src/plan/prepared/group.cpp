#include "plan/prepared/group.h"

#include "base/flat_map.h"

namespace sconce {

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
  }
  group.results.assign(block.returns().begin(), block.returns().end());
  return group;
}

}  // namespace sconce
