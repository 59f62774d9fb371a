#include "autodiff/rules/gradient_rule.h"

#include "analysis/effects.h"
#include "autodiff/rules/record_gradient.h"
#include "autodiff/select/roles.h"
#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <optional>
#include <string>

namespace sconce {
namespace {

// Which sizes that are known a pattern has. Those of 1 decide what is broadcast.
enum class KnownSizes : uint8_t { kOnes, kAll };

std::optional<ArgumentPattern> pattern_of_tensor(const Value& value, KnownSizes known) {
  const TensorFacts* facts = value.facts();
  if (facts == nullptr || !facts->dtype || !facts->sizes || !facts->device || !facts->device->is_cpu() ||
      facts->layout.value_or(c10::kStrided) != c10::kStrided || facts->defined == false) {
    return std::nullopt;
  }
  ArgumentPattern pattern;
  pattern.dtype = facts->dtype;
  pattern.requires_grad = may_require_grad(value);
  for (const Dim& dim : *facts->sizes) {
    const bool is_kept = dim.is_known() && (known == KnownSizes::kAll || dim.value() <= 1);
    pattern.sizes.push_back(is_kept ? std::optional(dim.value()) : std::nullopt);
  }
  return pattern;
}

// Returns the constant that a value is. A list of constant integers may be made by a node.
std::optional<c10::IValue> constant_of(const Value& value) {
  if (const c10::IValue* constant = value.constant()) {
    return constant->isTensor() || constant->isObject() ? std::nullopt : std::optional(*constant);
  }
  if (value.node()->opcode() != Opcode::kListConstruct || *value.type() != *c10::ListType::ofInts()) {
    return std::nullopt;
  }
  c10::List<int64_t> list;
  for (const Value* element : value.node()->inputs()) {
    if (element->constant() == nullptr) {
      return std::nullopt;
    }
    list.push_back(element->constant()->toInt());
  }
  return list;
}

std::optional<CallPattern> pattern_of(const Node& node, KnownSizes known) {
  CallPattern pattern{node.op().canonical != nullptr ? node.op().canonical : &node.op(), {}};
  for (const Value* operand : node.inputs()) {
    std::optional<ArgumentPattern> argument;
    if (is_tensor(*operand)) {
      argument = pattern_of_tensor(*operand, known);
    } else if (const std::optional<c10::IValue> constant = constant_of(*operand)) {
      argument.emplace();
      argument->constant = *constant;
    }
    if (!argument) {
      return std::nullopt;
    }
    pattern.arguments.push_back(*argument);
  }
  return pattern;
}

// Returns the key of the node's gradient, or nothing.
std::optional<std::string> record_gradient_of(const Node& node) {
  for (const KnownSizes known : {KnownSizes::kOnes, KnownSizes::kAll}) {
    const std::optional<CallPattern> pattern = pattern_of(node, known);
    if (pattern && record_gradient(*pattern).refusal.empty()) {
      return pattern->key();
    }
  }
  return std::nullopt;
}

}  // namespace

bool may_have_recorded_gradient(const Node& node) {
  const Op& op = node.op().canonical != nullptr ? *node.op().canonical : node.op();
  return op.recorded_gradient && op.schema->arguments().size() == node.inputs().size() && !has_effects(node) &&
         gradient_of(node.op()) == nullptr;
}

GradientRule gradient_of(const Node& node) {
  if (const AttributeValue* key = node.attribute(attr::kRecordedGradient)) {
    return {&recorded_gradient(std::get<std::string>(*key)).gradient, true};
  }
  return {node.schema() != nullptr ? gradient_of(node.op()) : nullptr, false};
}

void record_gradients(Graph& graph) {
  for_each_node(graph.body(), [](Node* node) {
    const auto flows_to = [](const Value* operand) { return may_require_grad(*operand); };
    if (may_have_recorded_gradient(*node) && std::any_of(node->inputs().begin(), node->inputs().end(), flows_to)) {
      if (const std::optional<std::string> key = record_gradient_of(*node)) {
        node->set_attribute(attr::kRecordedGradient, *key);
      }
    }
  });
}

void forget_recorded_gradients(Graph& graph) {
  for_each_node(graph.body(), [](Node* node) { node->remove_attribute(attr::kRecordedGradient); });
}

}  // namespace sconce
