#include "passes/autocast/lower_callers_autocast.h"

#include "ir/constant_operands.h"
#include "ir/schema_match.h"
#include "passes/insert_node.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <optional>

namespace sconce {
namespace {

// Returns whether the type says that its values are tensors or contain some; those in objects are not counted.
bool has_tensor_in_type(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::TensorType || type->kind() == c10::TypeKind::AnyType ||
         std::ranges::any_of(type->containedTypes(), has_tensor_in_type);
}

// Other pads call operators that autocast casts to float32.
bool pads_with_constant(const Node& node) {
  const c10::IValue* mode = node.kind() == aten::pad ? node.named_input("mode")->constant() : nullptr;
  return mode != nullptr && mode->isString() && mode->toStringRef() == "constant";
}

CpuAutocast treatment_of(const Node& node) {
  switch (node.opcode()) {
    // Operators run in callees, on other threads, or in a backend's subgraph.
    case Opcode::kCallMethod:
    case Opcode::kCallFunction:
    case Opcode::kEnter:
    case Opcode::kExit:
    case Opcode::kFork:
    case Opcode::kAwaitable:
    case Opcode::kWait:
    case Opcode::kSort:
    case Opcode::kSorted:
    case Opcode::kDelegate:
    // They tell whether autocast is on.
    case Opcode::kIsAutocastEnabled:
    case Opcode::kIsAutocastCpuEnabled: return CpuAutocast::kUnknown;
    default: return node.schema() == nullptr || pads_with_constant(node) ? CpuAutocast::kNothing : node.op().cpu_autocast;
  }
}

// Returns whether every tensor among the operands is an operand itself, and there.
bool has_only_tensors(const Node& node) {
  return std::ranges::all_of(node.inputs(), [](const Value* input) {
    return input->type()->kind() == c10::TypeKind::TensorType || is_none(*input) || !has_tensor_in_type(input->type());
  });
}

// LibTorch casts each operand of each operator by itself: the gradients of the casts add up in the tensor's own dtype.
void cast_operands(Node& node, c10::ScalarType dtype) {
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (node.input(i)->type()->kind() == c10::TypeKind::TensorType) {
      Value* to = node.graph().insert_constant(static_cast<int64_t>(dtype), &node);
      node.set_input(i, insert_operator(autocast_cast_op().kind, {node.input(i), to}, node));
    }
  }
}

// Returns the dtype to which autocast casts all operands of the node. Nothing if it casts none, or not all can be cast here.
std::optional<c10::ScalarType> dtype_of_casts(const Node& node, const CallersAutocast& autocast) {
  const CpuAutocast treatment = treatment_of(node);
  const bool casts_all = treatment == CpuAutocast::kReduced || treatment == CpuAutocast::kFull;
  return !casts_all || !has_only_tensors(node) ? std::nullopt
         : treatment == CpuAutocast::kReduced  ? std::optional(autocast.dtype)
                                               : std::optional(c10::kFloat);
}

// Replaces the node by one that runs without autocast.
Node& without_autocast(Node& node) {
  Node* plain = node.graph().create(node.kind(), node.inputs(), 0);
  for (Value* output : node.outputs()) {
    output->replace_all_uses_with(plain->add_output(output->type()));
  }
  plain->set_location(node.location())->insert_before(&node);
  resolve(*plain);
  node.erase();
  return *plain;
}

}  // namespace

bool lower_known_operands(Graph& graph, const CallersAutocast& autocast) {
  bool changed = false;
  for_each_node(graph.body(), [&](Node* node) {
    const auto dtype = node->op().runs_under_autocast ? dtype_of_casts(*node, autocast) : std::nullopt;
    if (dtype) {
      cast_operands(without_autocast(*node), *dtype);
      changed = true;
    }
  });
  return changed;
}

bool lower_callers_autocast(Graph& graph, const CallersAutocast& autocast) {
  bool changed = false;
  for_each_node(graph.body(), [&](Node* node) {
    const CpuAutocast treatment = treatment_of(*node);
    if (treatment == CpuAutocast::kNothing || treatment == CpuAutocast::kPromoted) {
      return;
    }
    changed = true;
    if (const auto dtype = dtype_of_casts(*node, autocast)) {
      cast_operands(*node, *dtype);
    } else {
      run_under_autocast(*node);
    }
  });
  return changed;
}

}  // namespace sconce
