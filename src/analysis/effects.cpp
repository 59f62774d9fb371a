#include "analysis/effects.h"

#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <optional>

namespace sconce {
namespace {

// Whether an operand rules out the writes that the schema does not mark (`training=False`).
bool rules_out_unmarked_writes(const Node& node) {
  const Op& op = node.op();
  const Value* condition = op.written_if.empty() ? nullptr : node.named_input(op.written_if);
  return condition != nullptr && constant_bool(*condition) == false;
}

bool is_number(const Value* value) {
  const c10::TypeKind kind = value->type()->kind();
  return kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType;
}

// Returns whether the node computes a power of numbers that cannot be 0 to a negative one, which raises.
bool is_safe_power(const Node& node) {
  if (node.opcode() != Opcode::kPow || !is_number(node.input(0)) || !is_number(node.input(1))) {
    return false;
  }
  const auto number = [](const Value* value) {
    const auto* constant = value->constant();
    return constant != nullptr ? std::optional(constant->toScalar().toDouble()) : std::nullopt;
  };
  return number(node.input(0)).value_or(0) != 0 || number(node.input(1)).value_or(-1) >= 0;
}

bool any_nested(const Node& node, bool (*is_so)(const Node&)) {
  for (const Block* block : node.blocks()) {
    for (const Node* nested : block->nodes()) {
      if (is_so(*nested)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

bool may_write_operand(const Node& node, size_t index) {
  const Op& op = node.op();
  return op.schema != nullptr && index < op.schema->arguments().size() &&
         (op.is_marked_as_written(index) || (op.writes_unmarked(index) && !rules_out_unmarked_writes(node)));
}

Effects effects_of(const Node& node) {
  Effects effects = node.op().all_effects;
  effects.external |= node.attribute(attr::kKeptError) != nullptr;
  if (effects.writes && !node.op().written_if.empty() && rules_out_unmarked_writes(node)) {
    effects.writes = false;
    for (size_t i = 0; i < node.schema()->arguments().size(); ++i) {
      effects.writes |= node.op().is_marked_as_written(i);
    }
  }
  return effects;
}

bool may_raise(const Node& node) {
  if (!node.blocks().empty()) {
    return any_nested(node, may_raise);
  }
  if (is_safe_power(node)) {
    return false;
  }
  switch (node.op().raises) {
    case Raises::kNever: return false;
    case Raises::kNotOnNumbers: return !std::all_of(node.inputs().begin(), node.inputs().end(), is_number);
    case Raises::kByForm:
    case Raises::kMaybe: return true;
  }
  return true;
}

bool may_raise_by_elements(const Node& node) {
  if (!node.blocks().empty()) {
    return any_nested(node, may_raise_by_elements);
  }
  const OpRow* row = node.op().functional_row();
  if (row == nullptr || row->division) {
    return true;
  }
  const bool is_view = node.kind().is_aten() && node.schema() != nullptr && !node.schema()->returns().empty() &&
                       node.schema()->returns()[0].alias_info() != nullptr &&
                       !node.schema()->returns()[0].alias_info()->isWrite();
  const bool has_arithmetic = row->layout != Layout::kUnknown || row->product || row->affine;
  return may_raise(node) && row->raises != Raises::kByForm && !has_arithmetic && !is_view;
}

bool has_effects(const Node& node) { return effects_of(node).any() || any_nested(node, has_effects); }

bool may_hold_operands(const Op& op) { return op.results_may_hold_operands || op.may_keep_operands; }

bool produces_new_tensor(const Node& node) {
  const Op& op = node.op();
  // TorchScript's own operators, which have no dispatcher handle, promise nothing.
  return op.dispatched && !op.all_effects.unknown && !op.results_may_share_memory && !may_hold_operands(op) &&
         !op.may_overlap && node.outputs().size() == 1 && is_tensor(*node.output()) && op.schema->returns().size() == 1 &&
         op.schema->returns()[0].alias_info() == nullptr;
}

bool narrows_gradients(const Node& node) {
  const TensorFacts* to = node.outputs().size() == 1 ? node.output()->facts() : nullptr;
  const TensorFacts* from = node.inputs().empty() ? nullptr : node.input(0)->facts();
  return to != nullptr && from != nullptr && to->dtype && from->dtype && to->requires_grad != false &&
         c10::isReducedFloatingType(*to->dtype) && !c10::isReducedFloatingType(*from->dtype);
}

bool introduces_grad(const Node& node) {
  if (const Value* asked = node.named_input("requires_grad"); asked != nullptr && node.opcode() != Opcode::kRequiresGrad_) {
    const auto* constant = asked->constant();
    return !constant || !constant->isBool() || constant->toBool();
  }
  const Effects effects = effects_of(node);
  return node.opcode() == Opcode::kRequiresGrad_ || effects.unknown || effects.state;
}

bool introduces_grad(const Graph& graph) {
  bool may = false;
  for_each_node(graph.body(), [&](const Node* node) {
    if (node->opcode() == Opcode::kConstant) {
      // The attributes of an object may be other tensors in the next run.
      node->output()->constant()->visit([&](const c10::IValue& value) {
        may = may || (value.isObject() && !value.isCustomClass());
        return may;
      });
    } else {
      may = may || introduces_grad(*node);
    }
  });
  return may;
}

bool may_change_sizes(const Graph& graph) {
  bool may_change = false;
  for_each_node(graph.body(), [&](Node* node) { may_change = may_change || node->op().may_change_sizes; });
  return may_change;
}

bool marks_tensors(const Graph& graph) {
  bool found = false;
  for_each_node(graph.body(), [&](const Node* node) {
    const Value* asked = node->named_input("requires_grad");
    found =
        found || (asked != nullptr && constant_bool(*asked) != false && !(asked->constant() && asked->constant()->isNone()));
  });
  return found;
}

const char* why_never_recorded(const Graph& graph) {
  const char* reason = nullptr;
  for_each_node(graph.body(), [&](const Node* node) {
    if (node->kind() == prim::Print) {
      reason = "it prints";
    } else if (node->kind() == prim::grad) {
      reason = "it reads the gradient of a tensor";
    }
  });
  return reason;
}

}  // namespace sconce
