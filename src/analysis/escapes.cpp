#include "analysis/escapes.h"

#include "analysis/effects.h"
#include "ir/schema_match.h"
#include "ops/schema_corrections.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>

namespace sconce {

std::unordered_set<const Value*> find_escaping_values(const Graph& graph, const AliasSets& aliases, bool autograd_runs) {
  std::unordered_set<AliasSets::Set> escaping_sets = {aliases.wildcard()};
  // A value that escapes takes along the values it contains, at any depth.
  const auto escape = [&](const Value* value) {
    for (AliasSets::Set set = aliases.set_of(*value); set != AliasSets::kNone && escaping_sets.insert(set).second;) {
      set = aliases.contents_of(set);
    }
  };
  std::for_each(graph.outputs().begin(), graph.outputs().end(), escape);
  if (autograd_runs) {
    for_each_node(graph.body(), [&](Node* node) {
      if (node->schema() != nullptr) {
        std::for_each(node->inputs().begin(), node->inputs().end(), escape);
        std::for_each(node->outputs().begin(), node->outputs().end(), escape);
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
  if (node.kind() == aten::__is__ || node.kind() == aten::__isnot__) {
    return std::none_of(node.inputs().begin(), node.inputs().end(),
                        [](const Value* input) { return input->type()->kind() == c10::TypeKind::NoneType; });
  }
  // These observe the identity of tensors, which may also be keys of dicts.
  static const std::array kinds = {aten::__contains__, aten::hash, c10::Symbol::fromQualString("aten::is_set_to"),
                                   c10::Symbol::fromQualString("aten::data_ptr")};
  return value.type()->kind() == c10::TypeKind::TensorType &&
         std::find(kinds.begin(), kinds.end(), node.kind()) != kinds.end();
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
    if (i != index && writes_argument(schema, i) && holds_mutable(node.input(i))) {
      return true;
    }
  }
  const bool marked = index < arguments.size() && arguments[index].alias_info() != nullptr;
  const c10::TypePtr& type = node.input(index)->type();
  // A tensor shares no memory with a list of numbers.
  const bool is_plain_list = type->kind() == c10::TypeKind::ListType && !holds_memory(type->containedType(0));
  return std::any_of(node.outputs().begin(), node.outputs().end(), [&](const Value* output) {
    return holds_memory(output->type()) &&
           (marked || (!is_plain_list && results_may_share_memory(schema)) || holds_mutable(output));
  });
}

// Returns whether the node only stores its operand in its results, or reads it from there.
bool moves_on(const Node& node) {
  static const std::array kinds = {prim::ListConstruct, prim::TupleConstruct, prim::ListUnpack,    prim::TupleUnpack,
                                   prim::TupleIndex,    prim::TupleSlice,     prim::unchecked_cast};
  return std::find(kinds.begin(), kinds.end(), node.kind()) != kinds.end();
}

const Node* escaping_use(const Value& value, std::unordered_set<const Value*>& seen) {
  if (!holds_memory(value.type()) || !seen.insert(&value).second) {
    return nullptr;
  }
  for (const Use& use : value.uses()) {
    const Node& user = *use.user;
    if (!moves_on(user)) {
      if (is_language_kind(user.kind()) || user.schema() == nullptr || effects_of(user).unknown) {
        // it reads the type only
        if (user.kind() != prim::isinstance && user.kind() != prim::GetAttr) {
          return &user;
        }
        continue;
      }
      if (reads_identity(user, value)) {
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
  return std::all_of(value.uses().begin(), value.uses().end(), [&](const Use& use) {
    const Node& user = *use.user;
    if (!moves_on(user)) {
      if (is_language_kind(user.kind()) || user.schema() == nullptr || effects_of(user).unknown) {
        return user.kind() == prim::isinstance;
      }
      if (reads_identity(user, value) || may_write_operand(user, use.index)) {
        return false;
      }
      if (!operator_hands_on(user, use.index)) {
        return true;
      }
    }
    return std::all_of(user.outputs().begin(), user.outputs().end(),
                       [&](const Value* output) { return is_read_only_and_local(*output, seen); });
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
  static const std::array kinds = {prim::GetAttr,    prim::TupleIndex,     prim::TupleUnpack,
                                   prim::ListUnpack, prim::unchecked_cast, aten::__getitem__};
  return std::find(kinds.begin(), kinds.end(), node.kind()) != kinds.end() &&
         (node.kind() != aten::__getitem__ || node.input(0)->type()->kind() != c10::TypeKind::TensorType);
}

}  // namespace sconce
