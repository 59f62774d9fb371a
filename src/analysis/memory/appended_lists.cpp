#include "analysis/memory/appended_lists.h"

#include "analysis/nested_uses.h"
#include "analysis/nesting.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

bool is_empty_tensor_list(const Value& list) {
  const auto type = list.type()->cast<c10::ListType>();
  return type != nullptr && type->getElementType()->kind() == c10::TypeKind::TensorType &&
         list.node()->opcode() == Opcode::kListConstruct && list.node()->inputs().empty();
}

}  // namespace

std::optional<AppendedList> appended_list(const Value& list) {
  if (!is_empty_tensor_list(list)) {
    return std::nullopt;
  }
  AppendedList found{list.node()->next(), {}, {}};
  while (found.filled_by != nullptr && !uses_any(*found.filled_by, {&list})) {
    found.filled_by = found.filled_by->next();
  }
  if (found.filled_by == nullptr || found.filled_by->blocks().empty()) {
    return std::nullopt;
  }
  for (const Use& use : list.uses()) {
    if (!is_inside(use.user, *found.filled_by)) {
      found.reads.push_back(use);
    } else if (use.user->opcode() == Opcode::kAppend && use.index == 0 && !use.user->output()->has_uses()) {
      found.appends.push_back(use.user);
    } else {
      return std::nullopt;
    }
  }
  return found;
}

Node* joining_node(const AppendedList& list) {
  if (list.reads.size() != 1 || list.reads[0].index != 0) {
    return nullptr;
  }
  Node* const reader = list.reads[0].user;
  const bool joins = reader->opcode() == Opcode::kStack || reader->opcode() == Opcode::kCat;
  return joins && reader->owning_block() == list.filled_by->owning_block() ? reader : nullptr;
}

bool joins_appended_list(const Node& node) {
  if (node.opcode() != Opcode::kStack && node.opcode() != Opcode::kCat) {
    return false;
  }
  const auto list = appended_list(*node.input(0));
  return list && joining_node(*list) == &node;
}

}  // namespace sconce
