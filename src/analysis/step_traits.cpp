#include "analysis/step_traits.h"

#include "analysis/effects.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

std::optional<c10::Device> device_of(c10::ArrayRef<Value*> values) {
  for (const Value* value : values) {
    if (value->facts() != nullptr && value->facts()->device) {
      return value->facts()->device;
    }
  }
  return std::nullopt;
}

bool is_host_value(const Value* value) {
  const c10::TypeKind kind = value->type()->kind();
  return kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType ||
         kind == c10::TypeKind::ComplexType || kind == c10::TypeKind::NumberType || kind == c10::TypeKind::ListType;
}

bool may_hold_tensor(const Value* value) { return holds_memory(value->type()); }

// Elements of tensors become numbers: `item`, `Bool.Tensor`, `equal`, `tolist`. Sizes and dtypes are on the host anyway.
bool reads_elements_on_host(const Node& node) {
  if (node.op().has_tag(at::Tag::data_dependent_output)) {
    return true;
  }
  const auto inputs = node.inputs();
  const auto outputs = node.outputs();
  return node.schema() != nullptr && !node.op().is_language() && node.op().reads == Reads::kElements &&
         !node.op().moves_operands && !outputs.empty() &&
         std::any_of(inputs.begin(), inputs.end(), [](const Value* input) { return is_tensor(*input); }) &&
         std::all_of(outputs.begin(), outputs.end(),
                     [](const Value* output) { return is_host_value(output) && !may_hold_tensor(output); });
}

bool runs_another_graph(const Node& node) {
  switch (node.opcode()) {
    case Opcode::kCallFunction:
    case Opcode::kCallMethod:
    case Opcode::kEnter:
    case Opcode::kExit:
    case Opcode::kFork:
    case Opcode::kAwaitable:
    case Opcode::kWait:
    case Opcode::kDelegate: return true;
    default: return false;
  }
}

std::optional<NotRecordable> find_obstacle(const Node& node, const Effects& effects, bool reads_host) {
  return node.opcode() == Opcode::kIf || node.opcode() == Opcode::kLoop ? std::optional(NotRecordable::kBranches)
         : runs_another_graph(node)                                     ? std::optional(NotRecordable::kRunsCode)
         : reads_host                                                   ? std::optional(NotRecordable::kReadsHost)
         : effects.unknown                                              ? std::optional(NotRecordable::kUnknownEffects)
         : effects.external || effects.state                            ? std::optional(NotRecordable::kHostEffects)
         : node.op().has_tag(at::Tag::dynamic_output_shape)             ? std::optional(NotRecordable::kSizesByElements)
         : node.op().has_tag(at::Tag::cudagraph_unsafe)                 ? std::optional(NotRecordable::kForbidden)
                                                                        : std::nullopt;
}

}  // namespace

StepTraits traits_of(const Node& node) {
  const Effects effects = effects_of(node);
  StepTraits traits;
  traits.device = device_of(node.outputs());
  if (!traits.device) {
    traits.device = device_of(node.inputs());
  }
  traits.random = effects.random;
  traits.writes = effects.writes;
  traits.reads_host = reads_elements_on_host(node);
  traits.not_recordable = find_obstacle(node, effects, traits.reads_host);
  return traits;
}

}  // namespace sconce
