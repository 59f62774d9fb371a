#include "analysis/effects.h"

#include "ir/schema_match.h"
#include "ops/per_schema.h"
#include "ops/schema_corrections.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>

namespace sconce {
namespace {

// The language's node kinds, and the operators whose schema is silent about what they do.
Effects effects_of_language_node(c10::Symbol kind) {
  // They run code that is not looked at: a callee, `__enter__` and `__exit__`, a subgraph.
  static const std::array opaque = {prim::CallFunction, prim::CallMethod, prim::Enter,
                                    prim::Exit,         prim::fork,       prim::awaitable};
  if (kind == prim::SetAttr) {
    return {.writes = true};
  }
  if (std::find(opaque.begin(), opaque.end(), kind) != opaque.end()) {
    return {.unknown = true};
  }
  return {};
}

bool acts_outside(c10::Symbol kind) {
  static const std::array kinds = {prim::Print, prim::RaiseException, aten::warn, prim::AddStatValue, prim::TimePoint};
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

bool changes_state(c10::Symbol kind) { return kind == aten::save || kind == aten::manual_seed; }

bool only_reads_state(c10::Symbol kind) {
  static const std::array kinds = {
      c10::Symbol::fromQualString("aten::is_autocast_enabled"), c10::Symbol::fromQualString("aten::is_autocast_cpu_enabled"),
      c10::Symbol::fromQualString("aten::get_autocast_dtype"),  c10::Symbol::fromQualString("aten::is_grad_enabled"),
      c10::Symbol::fromQualString("aten::_get_tracing_state"),  c10::Symbol::fromQualString("aten::is_scripting"),
      c10::Symbol::fromQualString("aten::has_torch_function")};
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

bool draws_random_numbers(const c10::FunctionSchema& schema) {
  const auto op = c10::Dispatcher::singleton().findSchema(schema.operator_name());
  if (!op) {
    return false;
  }
  if (op->hasTag(at::Tag::nondeterministic_seeded)) {
    return true;
  }
  // A composite that takes a generator draws from it through the ops it calls.
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& argument) { return argument.name() == "generator"; });
}

bool is_trusted(const c10::FunctionSchema& schema) {
  const auto op = torch::jit::findOperatorFor(schema.operator_name());
  return op != nullptr && op->aliasAnalysisKind() != c10::AliasAnalysisKind::CONSERVATIVE;
}

Effects effects_of_operator(const c10::FunctionSchema& schema) {
  if (only_reads_state(c10::Symbol::fromQualString(schema.name()))) {
    return {};
  }
  if (!is_trusted(schema)) {
    return {.unknown = true};
  }
  const c10::Symbol kind = c10::Symbol::fromQualString(schema.name());
  Effects effects;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    effects.writes |= writes_argument(schema, i);
  }
  effects.random = draws_random_numbers(schema);
  effects.external = acts_outside(kind);
  effects.state = changes_state(kind) || (schema.returns().empty() && !effects.writes && !effects.external);
  return effects;
}

// Whether an operand forbids the writes that the schema is silent about (`training=False`).
bool is_told_not_to_write(const Node& node) {
  const SchemaCorrection* correction = find_correction(*node.schema());
  if (correction == nullptr || correction->written_if.empty()) {
    return false;
  }
  const Value* condition = node.named_input(correction->written_if);
  const auto constant = condition == nullptr ? std::nullopt : condition->constant();
  return constant && constant->isBool() && !constant->toBool();
}

bool is_marked_as_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

}  // namespace

bool may_write_operand(const Node& node, size_t index) {
  return index < node.schema()->arguments().size() && writes_argument(*node.schema(), index) &&
         (is_marked_as_written(node.schema()->arguments()[index]) || !is_told_not_to_write(node));
}

Effects effects_of(const Node& node) {
  if (is_language_kind(node.kind())) {
    return effects_of_language_node(node.kind());
  }
  const c10::FunctionSchema* schema = node.schema();
  if (node.kind() == prim::awaitable_wait || node.kind() == aten::wait) {
    return {.unknown = true};  // the awaited code runs now, or ran up to now
  }
  if (schema == nullptr) {
    return {.unknown = true};
  }
  static thread_local PerSchema<Effects> known;
  Effects effects = known.get(*schema, effects_of_operator);
  if (effects.writes && is_told_not_to_write(node)) {
    const auto& arguments = schema->arguments();
    effects.writes = std::any_of(arguments.begin(), arguments.end(), is_marked_as_written);
  }
  return effects;
}

bool differentiates(const Node& node) {
  static const std::array kinds = {c10::Symbol::fromQualString("aten::backward"), c10::Symbol::fromQualString("aten::grad"),
                                   c10::Symbol::fromQualString("aten::retain_grad")};
  return std::find(kinds.begin(), kinds.end(), node.kind()) != kinds.end();
}

bool reads_state(const Node& node) { return only_reads_state(node.kind()); }

namespace {

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

bool may_raise(const Node& node) {
  if (!node.blocks().empty()) {
    return any_nested(node, may_raise);
  }
  // No cast is among them: it is right only behind the test that it stands behind.
  static const std::array total = {
      prim::Constant, prim::ListConstruct, prim::TupleConstruct, prim::TupleUnpack, prim::TupleSlice,
      prim::GetAttr,  prim::isinstance,    prim::dtype,          prim::device,      prim::layout,
      aten::dim,      aten::__is__,        aten::__isnot__,      aten::__not__,     aten::len};
  if (std::find(total.begin(), total.end(), node.kind()) != total.end()) {
    return false;
  }
  // Of numbers: all but what divides or takes a power.
  static const std::array of_numbers = {aten::add, aten::sub, aten::mul, aten::neg, aten::eq,      aten::ne,
                                        aten::lt,  aten::le,  aten::gt,  aten::ge,  aten::__and__, aten::__or__};
  return std::find(of_numbers.begin(), of_numbers.end(), node.kind()) == of_numbers.end() ||
         !std::all_of(node.inputs().begin(), node.inputs().end(), [](const Value* input) {
           return input->type()->kind() == c10::TypeKind::IntType || input->type()->kind() == c10::TypeKind::FloatType ||
                  input->type()->kind() == c10::TypeKind::BoolType;
         });
}

bool has_effects(const Node& node) { return effects_of(node).any() || any_nested(node, has_effects); }

}  // namespace sconce
