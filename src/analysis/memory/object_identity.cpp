#include "analysis/memory/object_identity.h"

#include "analysis/effects.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

bool is_tuple_or_text(const c10::Type& type) {
  return type.kind() == c10::TypeKind::TupleType || type.kind() == c10::TypeKind::StringType ||
         (type.kind() == c10::TypeKind::OptionalType &&
          is_tuple_or_text(*type.expectRef<c10::OptionalType>().getElementType()));
}

// Returns whether the type is a tuple, a string, or a container of them. Does not look into classes.
bool may_hold_tuple_or_text(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::ClassType || type->kind() == c10::TypeKind::FunctionType) {
    return false;
  }
  return is_tuple_or_text(*type) || type->kind() == c10::TypeKind::AnyType ||
         std::ranges::any_of(type->containedTypes(), may_hold_tuple_or_text);
}

bool any_may_hold_tuple_or_text(c10::ArrayRef<Value*> values) {
  return std::ranges::any_of(values, [](const Value* value) { return may_hold_tuple_or_text(value->type()); });
}

}  // namespace

bool observes_identity(const Graph& graph, const std::function<bool(const Node&)>& is_seen) {
  bool asks = false;
  for_each_node(graph.body(), [&](Node* node) {
    const auto may_be_tuple = [](const Value* value) {
      const c10::TypeKind kind = value->type()->kind();
      return is_tuple_or_text(*value->type()) || kind == c10::TypeKind::AnyType || kind == c10::TypeKind::UnionType;
    };
    const auto inputs = node->inputs();
    const bool compares =
        (node->opcode() == Opcode::kIs || node->opcode() == Opcode::kIsNot) && std::ranges::all_of(inputs, may_be_tuple);
    const bool calls_unseen = node->op().is_language() && effects_of(*node).unknown && (!is_seen || !is_seen(*node)) &&
                              any_may_hold_tuple_or_text(inputs);
    asks = asks || compares || calls_unseen;
  });
  return asks;
}

bool produces_tuple_or_string(const Node& node) {
  return std::ranges::any_of(node.outputs(), [](const Value* output) { return is_tuple_or_text(*output->type()); });
}

}  // namespace sconce
