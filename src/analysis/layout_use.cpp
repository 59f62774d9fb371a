#include "analysis/layout_use.h"

#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

Layout layout_of(const Node& node) {
  const OpRow* row = node.outputs().size() == 1 && is_tensor(*node.output()) ? node.op().functional_row() : nullptr;
  return node.schema() == nullptr || row == nullptr ? Layout::kUnknown : row->layout;
}

bool is_int(const Value* value, int64_t wanted) { return value != nullptr && is_constant_int(*value, wanted); }

bool writes_first_operand(const Node& node) { return node.schema()->is_mutable(); }

}  // namespace

LayoutUse layout_use(const Node& node, size_t index) {
  if (node.op().reads == Reads::kMetadata) {
    return LayoutUse::kAgnostic;
  }
  if (node.opcode() == Opcode::kFlatten && index == 0 && is_int(node.named_input("start_dim"), 1) &&
      (is_int(node.named_input("end_dim"), -1) || is_int(node.named_input("end_dim"), 3)) &&
      node.named_input("out_dim") == nullptr) {
    return LayoutUse::kFlattens;
  }
  switch (layout_of(node)) {
    case Layout::kUnknown: return LayoutUse::kSensitive;
    // The other operands are read into the memory of the first where that is written.
    case Layout::kPointwise: return index > 0 && writes_first_operand(node) ? LayoutUse::kAgnostic : LayoutUse::kPreserving;
    case Layout::kImages: return index == 0 ? LayoutUse::kPreserving : LayoutUse::kSensitive;
    case Layout::kNew:
    case Layout::kContiguous: return LayoutUse::kSensitive;
    case Layout::kReduces: return index == 0 ? LayoutUse::kAgnostic : LayoutUse::kSensitive;
  }
  return LayoutUse::kSensitive;
}

bool is_pointwise(const Node& node) { return layout_of(node) == Layout::kPointwise; }

bool is_pointwise_of_one(const Node& node) {
  return is_pointwise(node) && !writes_first_operand(node) && is_tensor(*node.input(0)) &&
         std::none_of(node.inputs().begin() + 1, node.inputs().end(), [](const Value* input) { return is_tensor(*input); });
}

}  // namespace sconce
