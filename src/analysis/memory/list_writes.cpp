#include "analysis/memory/list_writes.h"

#include "analysis/effects.h"
#include "ir/memory_types.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

bool is_list(const Value& value) { return value.type()->kind() == c10::TypeKind::ListType; }

}  // namespace

Opcode list_write_of(const Node& node) {
  if (node.schema() == nullptr || node.inputs().empty() || !is_list(*node.input(0)) || node.schema()->is_vararg() ||
      !node.op().writes_argument(0)) {
    return Opcode::kOpaque;
  }
  switch (node.opcode()) {
    case Opcode::kAppend:
    case Opcode::kExtend:
    case Opcode::kInsert:
    case Opcode::kSetItem:
    case Opcode::kPop:
    case Opcode::kDelete:
    case Opcode::kReverse:
    case Opcode::kClear: return node.opcode();
    default: return Opcode::kOpaque;
  }
}

bool only_reads_list(const Node& node, size_t index) {
  // A list cannot hide in a tensor or number.
  const bool produces_no_lists = std::ranges::all_of(node.outputs(), [](const Value* output) {
    return output->type()->kind() == c10::TypeKind::TensorType || !holds_memory(output->type());
  });
  if (!produces_no_lists || node.opcode() == Opcode::kIs || node.opcode() == Opcode::kIsNot) {
    return false;
  }
  if (node.opcode() == Opcode::kListUnpack) {
    return true;
  }
  if (node.schema() == nullptr || effects_of(node).unknown || index >= node.schema()->arguments().size()) {
    return false;
  }
  // It may put the list into a container that it writes.
  const size_t formals = std::min(node.schema()->arguments().size(), node.inputs().size());
  for (size_t i = 0; i < formals; ++i) {
    const bool is_container = node.input(i)->type()->kind() != c10::TypeKind::TensorType;
    if (node.op().writes_argument(i) && (i == index || is_container)) {
      return false;
    }
  }
  return true;
}

const Node* unpacking_node(const Value& list) {
  const auto uses = list.uses();
  return uses.size() == 1 && uses[0].user->opcode() == Opcode::kListUnpack ? uses[0].user : nullptr;
}

bool is_operand_list(const Value& list) {
  return std::ranges::all_of(
      list.uses(), [](const Use& use) { return only_reads_list(*use.user, use.index) && produces_new_tensor(*use.user); });
}

bool is_result_list(const Value& list) {
  const Node& node = *list.node();
  return unpacking_node(list) != nullptr && !node.op().is_language() && node.schema() != nullptr &&
         !effects_of(node).unknown && !effects_of(node).writes && std::ranges::all_of(node.inputs(), [](const Value* input) {
           return (memory_kinds_within(input->type()) & ~kListMemory) == kNoMemory || !is_container(input->type());
         });
}

}  // namespace sconce
