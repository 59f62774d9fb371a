#include "passes/pool_constants.h"

#include "ir/print_literal.h"

#include <cstdint>
#include <string>
#include <unordered_map>

namespace sconce {
namespace {

// Equal for constants that are the same; empty for those that have to stay.
std::string identity_of(const Value& output) {
  const c10::IValue value = *output.constant();
  std::string text = output.type()->annotation_str() + ' ';
  if (value.isTensor()) {
    text += std::to_string(reinterpret_cast<uintptr_t>(value.toTensor().unsafeGetTensorImpl()));
  } else if (!value.isNone() && !value.isInt() && !value.isDouble() && !value.isBool() && !value.isComplexDouble() &&
             !value.isString() && !value.isDevice()) {
    return "";
  } else {
    print_constant(text, value, nullptr);
  }
  return text;
}

}  // namespace

bool pool_constants(Graph& graph) {
  bool changed = false;
  std::unordered_map<std::string, Value*> pool;
  Node* last = nullptr;  // of the constants at the top
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() != prim::Constant) {
      return;
    }
    const std::string identity = identity_of(*node->output());
    if (identity.empty()) {
      return;
    }
    const auto [pooled, is_first] = pool.try_emplace(identity, node->output());
    if (!is_first) {
      node->output()->replace_all_uses_with(pooled->second);
      node->erase();
      changed = true;
      return;
    }
    Node* const place = last == nullptr ? graph.body().first() : last->next();
    if (place != node) {
      node->detach();
      node->insert_before(place != nullptr ? place : graph.body().return_node());
      changed = true;
    }
    last = node;
  });
  return changed;
}

}  // namespace sconce
