#include "analysis/memory/escapes.h"

#include "analysis/effects.h"
#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {

std::unordered_set<const Value*> find_escaping_values(const Graph& graph, const AliasSets& aliases, bool autograd_runs) {
  std::unordered_set<AliasSets::Set> escaping_sets = {aliases.wildcard()};
  // A value that escapes takes along the values it contains, at any depth.
  const auto escape = [&](const Value* value) {
    for (AliasSets::Set set = aliases.set_of(*value); set != AliasSets::kNone && escaping_sets.insert(set).second;) {
      set = aliases.contents_of(set);
    }
  };
  std::ranges::for_each(graph.outputs(), escape);
  if (autograd_runs) {
    for_each_node(graph.body(), [&](Node* node) {
      if (node->schema() != nullptr) {
        std::ranges::for_each(node->inputs(), escape);
        std::ranges::for_each(node->outputs(), escape);
      }
    });
  }
  std::unordered_set<const Value*> escaping;
  const auto visit_values = [&](c10::ArrayRef<Value*> values) {
    for (const Value* value : values) {
      if (const AliasSets::Set set = aliases.set_of(*value); set != AliasSets::kNone && escaping_sets.contains(set)) {
        escaping.insert(value);
      }
    }
  };
  visit_values(graph.inputs());
  for_each_node(graph.body(), [&](Node* node) {
    visit_values(node->inputs());
    visit_values(node->outputs());
    for (const Block* block : node->blocks()) {
      visit_values(block->params());
    }
  });
  return escaping;
}

namespace {

// Returns whether the operator observes the identity of the value.
bool reads_identity(const Node& node, const Value& value) {
  if (node.opcode() == Opcode::kIs || node.opcode() == Opcode::kIsNot) {
    return std::ranges::none_of(node.inputs(), [](const Value* input) { return is_none(*input); });
  }
  return is_tensor(value) && node.op().reads_identity;
}

// Returns whether the operator may keep or return the value at `index`, or a view of it.
bool operator_hands_on(const Node& node, size_t index) {
  const c10::FunctionSchema& schema = *node.schema();
  const auto& arguments = schema.arguments();
  const auto holds_mutable = [](const Value* value) {
    return value->type()->kind() != c10::TypeKind::TensorType && holds_memory(value->type());
  };
  // An operator that writes a container may store its other operands there.
  for (size_t i = 0; i < std::min(arguments.size(), node.inputs().size()); ++i) {
    if (i != index && node.op().writes_argument(i) && holds_mutable(node.input(i))) {
      return true;
    }
  }
  const bool marked = index < arguments.size() && arguments[index].alias_info() != nullptr;
  const c10::TypePtr& type = node.input(index)->type();
  // A tensor shares no memory with a list of numbers.
  const bool is_plain_list = type->kind() == c10::TypeKind::ListType && !holds_memory(type->containedType(0));
  return std::ranges::any_of(node.outputs(), [&](const Value* output) {
    return holds_memory(output->type()) &&
           (marked || (!is_plain_list && node.op().results_may_share_memory) || holds_mutable(output));
  });
}

const Node* escaping_use(const Value& value, std::unordered_set<const Value*>& seen) {
  if (!holds_memory(value.type()) || !seen.insert(&value).second) {
    return nullptr;
  }
  for (const Use& use : value.uses()) {
    const Node& user = *use.user;
    if (!user.op().moves_operands) {
      if (user.schema() == nullptr || effects_of(user).unknown) {
        // It reads the type only.
        if (user.opcode() != Opcode::kIsInstance && user.opcode() != Opcode::kGetAttr) {
          return &user;
        }
        continue;
      }
      if (reads_identity(user, value) || may_hold_operands(user.op())) {
        return &user;
      }
      if (!operator_hands_on(user, use.index)) {
        continue;
      }
      if (user.outputs().empty() || effects_of(user).writes) {
        return &user;
      }
    }
    for (const Value* output : user.outputs()) {
      if (const Node* through = escaping_use(*output, seen)) {
        return through;
      }
    }
  }
  return nullptr;
}

bool is_read_only_and_local(const Value& value, std::unordered_set<const Value*>& seen) {
  if (!holds_memory(value.type()) || !seen.insert(&value).second) {
    return true;
  }
  return std::ranges::all_of(value.uses(), [&](const Use& use) {
    const Node& user = *use.user;
    if (!user.op().moves_operands) {
      if (user.schema() == nullptr || effects_of(user).unknown) {
        return user.opcode() == Opcode::kIsInstance;
      }
      if (reads_identity(user, value) || may_write_operand(user, use.index) || may_hold_operands(user.op())) {
        return false;
      }
      if (!operator_hands_on(user, use.index)) {
        return true;
      }
    }
    return std::ranges::all_of(user.outputs(), [&](const Value* output) { return is_read_only_and_local(*output, seen); });
  });
}

}  // namespace

bool is_read_only_and_local(const Value& value) {
  std::unordered_set<const Value*> seen;
  return is_read_only_and_local(value, seen);
}

bool may_escape(const Value& value) { return escaping_use(value) != nullptr; }

const Node* escaping_use(const Value& value) {
  std::unordered_set<const Value*> seen;
  return escaping_use(value, seen);
}

bool produces_existing_objects(const Node& node) {
  return node.op().returns_existing && (node.op().is_language() || !is_tensor(*node.input(0)));
}

}  // namespace sconce
