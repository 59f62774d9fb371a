#include "autodiff/select/roles.h"

#include "analysis/effects.h"
#include "analysis/memory/appended_lists.h"
#include "analysis/memory/list_writes.h"
#include "autodiff/rules/gradient_rule.h"
#include "autodiff/select/operands_copied_by_autograd.h"
#include "ir/constant_operands.h"
#include "ir/memory_types.h"
#include "load/compile_op_row.h"
#include "passes/simplify/propagate_facts.h"
#include "passes/simplify/simplify.h"

#include <ATen/core/jit_type.h>
#include <c10/core/ScalarType.h>

#include <algorithm>

namespace sconce {
namespace {

bool is_tensor_list(const Value& value) {
  const auto list = value.type()->cast<c10::ListType>();
  return list != nullptr && list->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool is_call(const Node& node) { return node.opcode() == Opcode::kCallFunction || node.opcode() == Opcode::kCallMethod; }

bool any_may_require_grad(c10::ArrayRef<Value*> values) {
  return std::ranges::any_of(values, [](const Value* value) {
    const Node& maker = *value->node();
    if (is_tensor_list(*value) && maker.opcode() == Opcode::kListConstruct && !maker.inputs().empty()) {
      return any_may_require_grad(maker.inputs());
    }
    return may_require_grad(*value) || is_tensor_list(*value);
  });
}

// The condition of the row's texts must fold to true with the constants and facts of the operands.
bool condition_holds(const Graph& condition, const Node& node) {
  const std::unique_ptr<Graph> copy = condition.clone();
  for (size_t i = 0; i < copy->inputs().size() && i < node.inputs().size(); ++i) {
    Value* input = copy->inputs()[i];
    input->set_type(node.input(i)->type());  // Tensor or None where the text has Optional[Tensor]
    if (const c10::IValue* constant = node.input(i)->constant()) {
      input->replace_all_uses_with(copy->insert_constant(
          *constant, copy->body().first() != nullptr ? copy->body().first() : copy->body().return_node(),
          node.input(i)->type()));
    } else if (const TensorFacts* facts = node.input(i)->facts()) {
      input->set_facts(*facts);
    }
  }
  propagate_facts(*copy, {}, KnownNumbers::kFold);
  simplify(*copy);
  const c10::IValue* result = copy->outputs()[0]->constant();
  return result != nullptr && result->isBool() && result->toBool();
}

// Returns why there is no rule, or none that serves the node.
std::optional<NotDifferentiated> why_no_rule(const Node& node, const OpGradient* gradient) {
  if (gradient == nullptr) {
    Effects effects = effects_of(node);
    effects.random = false;  // texts may draw random numbers
    return is_call(node)                      ? NotDifferentiated::kCall
           : effects.any()                    ? NotDifferentiated::kEffects
           : may_have_recorded_gradient(node) ? NotDifferentiated::kNotRecorded
                                              : NotDifferentiated::kNoText;
  }
  bool serves = gradient->condition == nullptr || condition_holds(*gradient->condition, node);
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    // LibTorch knows whether it is an error to ask for such a gradient.
    serves = serves && (has_gradient_for(*gradient, i) || !may_require_grad(*node.input(i)));
  }
  return serves ? std::nullopt : std::optional(NotDifferentiated::kCondition);
}

// Returns whether the operand may be a tensor, as far as its type says, but is not of that type.
bool may_hide_tensor(const Value& value) {
  return !is_tensor(value) && !is_none(value) && c10::TensorType::get()->isSubtypeOf(*value.type());
}

// Returns why the values do not suit the rules, which are derivatives of real functions.
std::optional<NotDifferentiated> why_not_real(c10::ArrayRef<Value*> values) {
  for (const Value* value : values) {
    if (may_hide_tensor(*value)) {
      return NotDifferentiated::kHiddenTensor;
    }
    const TensorFacts* facts = value->facts();
    if (is_tensor(*value) && (facts == nullptr || !facts->dtype)) {
      return NotDifferentiated::kUnknownDtype;
    }
    if (is_tensor(*value) && c10::isComplexType(*facts->dtype)) {
      return NotDifferentiated::kComplex;
    }
  }
  return std::nullopt;
}

// A list of numbers may have readers whose gradients need it as it was.
bool writes_only_what_needs_no_gradient(const Node& node) {
  const Effects effects = effects_of(node);
  return effects.writes && !effects.random && !effects.external && !effects.state && !effects.unknown &&
         !node.inputs().empty() && is_tensor(*node.input(0)) &&
         std::ranges::none_of(node.outputs(), [](const Value* output) { return output->has_uses(); });
}

// Returns whether the node computes, or writes, only what needs no gradient.
bool needs_no_gradient(const Node& node) {
  if (node.opcode() == Opcode::kListConstruct) {
    const Value& list = *node.output();
    return !is_tensor_list(list) || is_operand_list(list);
  }
  if (node.schema() == nullptr || !node.blocks().empty() || node.op().reads_state || node.op().differentiates ||
      node.op().is_language()) {
    return false;
  }
  const bool holds_objects = std::ranges::any_of(
      node.outputs(), [](const Value* output) { return !is_tensor(*output) && !is_number_like(*output); });
  return !holds_objects && !any_may_require_grad(node.inputs()) && !any_may_require_grad(node.outputs()) &&
         (!has_effects(node) || writes_only_what_needs_no_gradient(node));
}

// In a differentiable subgraph, nothing is known to autograd.
bool asks_autograd(const Node& node) { return node.op().differentiates || node.opcode() == Opcode::kRequiresGrad; }

bool is_numbers_of_tensor(const Node& node) {
  return node.schema() != nullptr && node.blocks().empty() && !has_effects(node) && !node.op().reads_state &&
         !asks_autograd(node) &&
         std::ranges::all_of(node.outputs(), [](const Value* output) { return is_number_like(*output); });
}

}  // namespace

bool may_require_grad(const Value& value) {
  if (!is_tensor(value)) {
    return false;
  }
  const TensorFacts* facts = value.facts();
  const bool is_discrete =
      facts != nullptr && facts->dtype && !c10::isFloatingType(*facts->dtype) && !c10::isComplexType(*facts->dtype);
  return !is_discrete && !(facts != nullptr && (facts->requires_grad == false || facts->defined == false));
}

bool requires_grad(const Value& value) { return value.facts() != nullptr && value.facts()->requires_grad == true; }

bool is_real_tensor(const Value& value) {
  const TensorFacts* facts = value.facts();
  return is_tensor(value) && facts != nullptr && facts->dtype && !c10::isComplexType(*facts->dtype);
}

bool is_number_like(const Value& value) {
  return !holds_memory(value.type()) || (!is_tensor(value) && can_be_constant(value.type()));
}

bool joins_list(const Node& node) {
  if ((node.opcode() != Opcode::kCat && node.opcode() != Opcode::kStack) ||
      node.input(0)->node()->opcode() != Opcode::kListConstruct || !is_operand_list(*node.input(0))) {
    return false;
  }
  // A cat may have an empty vector among tensors of any rank.
  const c10::ArrayRef<Value*> elements = node.input(0)->node()->inputs();
  return std::ranges::all_of(elements, [&](const Value* element) {
    const TensorFacts* facts = element->facts();
    return facts != nullptr && facts->sizes && facts->sizes->size() == elements[0]->facts()->sizes->size();
  });
}

bool cuts_list(const Node& node) {
  return (node.op().cuts || node.opcode() == Opcode::kUnbind) && node.outputs().size() == 1 &&
         unpacking_node(*node.output()) != nullptr;
}

bool is_cheap_view(const Node& node) {
  if (node.opcode() == Opcode::kListConstruct) {
    return is_operand_list(*node.output());
  }
  if (node.opcode() == Opcode::kListUnpack || cuts_list(node)) {
    return true;
  }
  if (node.schema() == nullptr || has_effects(node)) {
    return false;
  }
  if (node.outputs().size() == 1 && !node.inputs().empty()) {
    const auto from = known_dtype(*node.input(0));
    const auto to = known_dtype(*node.output());
    if (from && to && from != to) {
      return false;  // it copies, and its operand may be written until backward
    }
  }
  return node.op().results_may_share_memory ||
         std::ranges::any_of(node.schema()->returns(), [](const auto& result) { return result.alias_info() != nullptr; });
}

namespace {

// Returns why no gradient flows through the node in a differentiable subgraph, or nullopt if one does. Requires: the node is
// not auxiliary.
std::optional<NotDifferentiated> why_no_gradient_flows(const Node& node) {
  if (node.opcode() == Opcode::kListUnpack) {
    const Node& list = *node.input(0)->node();
    return cuts_list(list) ? why_no_gradient_flows(list) : NotDifferentiated::kList;
  }
  if (!any_may_require_grad(node.inputs())) {
    return NotDifferentiated::kNoGradient;
  }
  if (joins_list(node)) {
    return why_not_real(node.input(0)->node()->inputs());
  }
  if (joins_appended_list(node)) {
    return why_not_real(node.outputs());
  }
  if (cuts_list(node)) {
    return why_not_real(node.inputs());
  }
  if (node.opcode() == Opcode::kCat || node.opcode() == Opcode::kStack) {
    return NotDifferentiated::kList;
  }
  const OpGradient* gradient = gradient_of(node).gradient;
  if (gradient != nullptr || may_have_recorded_gradient(node)) {
    for (const c10::ArrayRef<Value*> values : {node.inputs(), node.outputs()}) {
      if (const auto reason = why_not_real(values)) {
        return reason;
      }
    }
  }
  return why_no_rule(node, gradient);
}

}  // namespace

bool is_auxiliary(const Node& node) {
  const bool has_list = joins_list(node) || joins_appended_list(node) || cuts_list(node);
  return has_list ? !any_may_require_grad(node.inputs())
                  : node.opcode() != Opcode::kListUnpack && (needs_no_gradient(node) || is_numbers_of_tensor(node));
}

Roles::Roles(const Graph& graph) {
  OperandsCopiedByAutograd copies(graph);
  for_each_node(graph.body(), [&](const Node* node) {
    if (node->opcode() == Opcode::kConstant || !node->blocks().empty()) {
      return;
    }
    if (is_auxiliary(*node)) {
      entries_[node] = {Role::kAuxiliary, {}};
    } else {
      std::optional<NotDifferentiated> reason = why_no_gradient_flows(*node);
      if (!reason && copies.any_is_written_later(*node)) {
        reason = NotDifferentiated::kCondition;
      }
      entries_[node] = {reason ? Role::kOutside : Role::kDifferentiated, reason};
    }
  });
}

Role Roles::of(const Node& node) const {
  const auto found = entries_.find(&node);
  return found == entries_.end() ? Role::kOutside : found->second.role;
}

std::optional<NotDifferentiated> Roles::why_outside(const Node& node) const {
  const auto found = entries_.find(&node);
  return found == entries_.end() ? std::nullopt : found->second.reason;
}

bool autograd_records(const Node& node) {
  const bool cuts_gradient = node.opcode() == Opcode::kDetach || is_comparison(node.opcode());
  const bool is_recorded = is_call(node) || (node.schema() != nullptr && node.blocks().empty() &&
                                             node.op().dispatched.has_value() && any_may_require_grad(node.inputs()));
  return is_recorded && !cuts_gradient && std::ranges::any_of(node.outputs(), [](const Value* output) {
           return may_require_grad(*output) || is_tensor_list(*output);
         });
}

}  // namespace sconce
