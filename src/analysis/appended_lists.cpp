#include "analysis/appended_lists.h"

#include "analysis/nested_uses.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

bool is_empty_tensor_list(const Value& list) {
  const auto type = list.type()->cast<c10::ListType>();
  return type != nullptr && type->getElementType()->kind() == c10::TypeKind::TensorType &&
         list.node()->opcode() == Opcode::kListConstruct && list.node()->inputs().empty();
}

// Returns the node of the block that is `node`, or that `node` is nested in.
Node* ancestor_in(const Block& block, Node* node) {
  while (node->owning_block() != &block) {
    node = node->owning_block()->owner();
  }
  return node;
}

}  // namespace

std::optional<AppendedList> appended_list(const Value& list) {
  if (!is_empty_tensor_list(list)) {
    return std::nullopt;
  }
  const Block& block = *list.node()->owning_block();
  AppendedList found{nullptr, {}, {}};
  for (const Use& use : list.uses()) {
    Node* const user = use.user;
    if (user->opcode() != Opcode::kAppend || use.index != 0) {
      found.reads.push_back(use);
      continue;
    }
    Node* const around = ancestor_in(block, user);
    if (around == user || user->output()->has_uses() || (found.filled_by != nullptr && found.filled_by != around)) {
      return std::nullopt;
    }
    found.filled_by = around;
    found.appends.push_back(user);
  }
  for (const Use& read : found.reads) {
    if (found.filled_by == nullptr || ancestor_in(block, read.user) == found.filled_by) {
      return std::nullopt;
    }
  }
  for (const Node* node = list.node()->next(); node != nullptr && node != found.filled_by; node = node->next()) {
    if (uses_any(*node, {&list})) {
      return std::nullopt;
    }
  }
  return found.filled_by == nullptr ? std::nullopt : std::optional(std::move(found));
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
