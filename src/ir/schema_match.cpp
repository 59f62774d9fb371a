#include "ir/schema_match.h"

#include "ir/captured.h"
#include "ir/delegate.h"
#include "ir/differentiable.h"
#include "ir/text/print.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <sstream>

namespace sconce {
namespace {

bool takes(const c10::FunctionSchema& schema, c10::ArrayRef<Value*> inputs) {
  const auto& formals = schema.arguments();
  if (inputs.size() < formals.size() || (inputs.size() > formals.size() && !schema.is_vararg())) {
    return false;
  }
  c10::TypeEnv type_variables;
  for (size_t i = 0; i < formals.size(); ++i) {
    c10::TypePtr formal = formals[i].type();
    if (formal->hasFreeVariables()) {
      if (!c10::matchTypeVariables(formal, inputs[i]->type(), type_variables).success()) {
        return false;
      }
      if (const c10::TypePtr resolved = c10::tryEvalTypeVariables(formal, type_variables)) {
        formal = resolved;
      }
    }
    if (!inputs[i]->type()->isSubtypeOf(*formal)) {
      return false;
    }
  }
  return true;
}

// Type variables replaced by what the inputs make of them; null when they say nothing about one.
c10::TypePtr result_type(const c10::FunctionSchema& schema, const Node& node, size_t output) {
  const c10::TypePtr& formal = schema.returns()[output].type();
  if (!formal->hasFreeVariables()) {
    return formal;
  }
  c10::TypeEnv type_variables;
  for (size_t i = 0; i < schema.arguments().size() && i < node.inputs().size(); ++i) {
    c10::matchTypeVariables(schema.arguments()[i].type(), node.input(i)->type(), type_variables);
  }
  return c10::tryEvalTypeVariables(formal, type_variables);
}

// A composite's schema repeats the types of its operands and results.
const Op& composite_op_of(const Node& node, Opcode opcode, Effects effects) {
  std::vector<c10::Argument> arguments;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    arguments.emplace_back("operand_" + std::to_string(i), node.input(i)->type());
  }
  std::vector<c10::Argument> results;
  for (const Value* output : node.outputs()) {
    results.emplace_back("", output->type());
  }
  return composite_op({node.kind().toQualString(), "", std::move(arguments), std::move(results)}, opcode, effects);
}

// Null for a node that is no composite.
const Op* composite_op_of(const Node& node) {
  if (node.kind() == kDelegateKind) {
    return &composite_op_of(node, Opcode::kDelegate, {});
  }
  if (node.kind() == kDifferentiableKind || node.kind() == kCapturedKind) {
    // Which operands it writes is not known.
    const bool has_effects = node.attribute(attr::kHasEffects) != nullptr;
    return &composite_op_of(node, node.kind() == kCapturedKind ? Opcode::kCaptured : Opcode::kDifferentiable,
                            {.random = node.attribute(attr::kDraws) != nullptr, .unknown = has_effects});
  }
  return node.kind() == autocast_cast_op().kind ? &autocast_cast_op() : nullptr;
}

}  // namespace

bool resolve(Node& node) {
  if (node.op().is_language()) {
    return true;
  }
  const Op* composite = composite_op_of(node);
  const Op* op = composite != nullptr ? composite : match_op(node);
  node.set_op(op != nullptr ? *op : unresolved_op());
  if (op != nullptr && node.attribute(attr::kAutocast) != nullptr) {
    run_under_autocast(node);
  }
  return op != nullptr;
}

void run_under_autocast(Node& node) {
  node.set_attribute(attr::kAutocast, int64_t{1});
  const bool calls_operator = node.op().dispatched || (node.op().registered != nullptr && node.opcode() == Opcode::kOpaque);
  if (calls_operator && !node.op().runs_under_autocast) {
    node.set_op(op_under_autocast(node.op()));
  }
}

const Op* match_op(const Node& node) {
  const c10::FunctionSchema* first = nullptr;
  for (const auto& candidate : torch::jit::getAllOperatorsFor(node.kind())) {
    if (takes(candidate->schema(), node.inputs())) {
      if (produces_results_of(candidate->schema(), node)) {
        return &op_of(candidate->schema());
      }
      first = first == nullptr ? &candidate->schema() : first;
    }
  }
  return first == nullptr ? nullptr : &op_of(*first);
}

bool produces_results_of(const c10::FunctionSchema& schema, const Node& node) {
  if (schema.is_varret()) {
    return true;
  }
  bool fits = node.outputs().size() == schema.returns().size();
  for (size_t i = 0; fits && i < node.outputs().size(); ++i) {
    const c10::TypePtr formal = result_type(schema, node, i);
    const c10::TypePtr& actual = node.output(i)->type();
    fits = formal == nullptr || actual->isSubtypeOf(*formal) || formal->isSubtypeOf(*actual);
  }
  return fits;
}

std::string explain_no_match(const Node& node) {
  std::ostringstream out;
  const auto& candidates = torch::jit::getAllOperatorsFor(node.kind());
  if (candidates.empty()) {
    out << "there is no operator " << node.kind().toQualString() << "; load the library that registers it (--ops-library)";
    return out.str();
  }
  out << "no overload of " << node.kind().toQualString() << " takes (";
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    out << (i == 0 ? "" : ", ") << print_type(*node.input(i));
  }
  out << "); there are:";
  for (const auto& candidate : candidates) {
    out << "\n  " << candidate->schema();
  }
  return out.str();
}

}  // namespace sconce
