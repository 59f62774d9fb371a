#include "analysis/step_traits.h"

#include "analysis/effects.h"
#include "analysis/node_devices.h"
#include "ir/constant_operands.h"
#include "ir/memory_types.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

bool holds_tensors(const Value* value) { return may_hold_tensors(value->type()); }

bool is_host_value(const Value* value) {
  const c10::TypeKind kind = value->type()->kind();
  return kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType ||
         kind == c10::TypeKind::ComplexType || kind == c10::TypeKind::NumberType || kind == c10::TypeKind::ListType;
}

// Elements of tensors become numbers: `item`, `Bool.Tensor`, `equal`, `tolist`. Sizes and dtypes are on the host anyway.
bool reads_elements_on_host(const Node& node) {
  if (node.op().has_tag(at::Tag::data_dependent_output)) {
    return true;
  }
  const auto outputs = node.outputs();
  return node.schema() != nullptr && !node.op().is_language() && node.op().reads == Reads::kElements &&
         !node.op().moves_operands && !outputs.empty() &&
         std::ranges::any_of(node.inputs(), [](const Value* input) { return is_tensor(*input); }) &&
         std::ranges::all_of(outputs, [](const Value* output) { return is_host_value(output) && !holds_tensors(output); });
}

bool runs_another_graph(const Node& node) {
  return runs_user_code(node.opcode()) || node.opcode() == Opcode::kDelegate || node.opcode() == Opcode::kDifferentiable ||
         node.opcode() == Opcode::kCaptured;
}

// Returns whether the operator computes, or at least returns, tensors. Others read sizes and dtypes, or move values between
// registers, which the host does while it captures.
bool works_on_device(const Node& node, const Effects& effects) {
  return !node.op().is_language() && !node.op().moves_operands &&
         (effects.writes || std::ranges::any_of(node.outputs(), [](const Value* output) { return holds_tensors(output); }));
}

// Returns whether the node makes a tensor of numbers of the host: TorchScript's own operators do (`torch.tensor`).
bool copies_from_host(const Node& node) {
  return !node.op().dispatched && !node.outputs().empty() && is_tensor(*node.output(0)) &&
         std::ranges::none_of(node.inputs(), holds_tensors);
}

// A capture fixes the forms of tensors, and repeats what the node read besides.
bool reads_more_than_forms(const Node& node) {
  return (node.op().reads_state && !node.op().runs_under_autocast) || node.op().reads_beyond_form ||
         (node.op().reads_identity && std::ranges::any_of(node.inputs(), holds_tensors));
}

// Returns why a capture on the device `captured` cannot hold the tensors.
std::optional<NotRecordable> find_wrong_device(const NodeDevices& devices, c10::Device captured) {
  return devices.known.size() > 1                                 ? std::optional(NotRecordable::kSeveralDevices)
         : !devices.known.empty() && devices.known[0] != captured ? std::optional(NotRecordable::kOtherDevice)
         : !devices.are_all_known                                 ? std::optional(NotRecordable::kUnknownDevice)
                                                                  : std::nullopt;
}

std::optional<NotRecordable> find_obstacle(const Node& node, const Effects& effects, bool reads_host, c10::Device captured) {
  return runs_another_graph(node)                           ? std::optional(NotRecordable::kRunsCode)
         : reads_host                                       ? std::optional(NotRecordable::kReadsHost)
         : node.op().has_tag(at::Tag::cudagraph_unsafe)     ? std::optional(NotRecordable::kForbidden)
         : effects.unknown                                  ? std::optional(NotRecordable::kUnknownEffects)
         : effects.external || effects.state                ? std::optional(NotRecordable::kHostEffects)
         : reads_more_than_forms(node)                      ? std::optional(NotRecordable::kReadsMore)
         : node.op().has_tag(at::Tag::dynamic_output_shape) ? std::optional(NotRecordable::kSizesByElements)
         : node.op().may_change_sizes                       ? std::optional(NotRecordable::kChangesSizes)
         : !works_on_device(node, effects)                  ? std::nullopt
         : copies_from_host(node)                           ? std::optional(NotRecordable::kSeveralDevices)
                                                            : find_wrong_device(devices_of(node), captured);
}

}  // namespace

StepTraits traits_of(const Node& node, c10::Device captured) {
  const Effects effects = effects_of(node);
  StepTraits traits;
  traits.computes = works_on_device(node, effects);
  traits.random = effects.random;
  traits.writes = effects.writes;
  traits.reads_host = reads_elements_on_host(node);
  traits.not_recordable = find_obstacle(node, effects, traits.reads_host, captured);
  return traits;
}

}  // namespace sconce
