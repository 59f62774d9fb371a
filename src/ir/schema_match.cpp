#include "ir/schema_match.h"

#include "ir/delegate.h"
#include "ir/text/print.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>
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

}  // namespace

bool is_language_kind(c10::Symbol kind) {
  switch (static_cast<c10::unique_t>(kind)) {
    case prim::Constant:
    case prim::If:
    case prim::Loop:
    case prim::ListConstruct:
    case prim::ListUnpack:
    case prim::TupleConstruct:
    case prim::TupleUnpack:
    case prim::TupleIndex:
    case prim::TupleSlice:
    case prim::DictConstruct:
    case prim::GetAttr:
    case prim::SetAttr:
    case prim::CreateObject:
    case prim::CallMethod:
    case prim::CallFunction:
    case prim::isinstance:
    case prim::unchecked_cast:
    case prim::Uninitialized:
    case prim::Enter:
    case prim::Exit:
    case prim::fork:
    case prim::awaitable:
    case prim::GradOf:
    case prim::ConstantChunk:
    case prim::Param:
    case prim::Return: return true;
    default: return kind == kDelegate;
  }
}

const c10::FunctionSchema* match_schema(const Node& node) {
  if (is_language_kind(node.kind())) {
    return nullptr;
  }
  const c10::FunctionSchema* first = nullptr;
  for (const auto& candidate : torch::jit::getAllOperatorsFor(node.kind())) {
    if (takes(candidate->schema(), node.inputs())) {
      if (produces_results_of(candidate->schema(), node)) {
        return &candidate->schema();
      }
      first = first == nullptr ? &candidate->schema() : first;
    }
  }
  return first;
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
