#include "analysis/layout_ops.h"

#include "analysis/affine_ops.h"
#include "analysis/in_place.h"
#include "ir/constant_operands.h"
#include "ops/per_schema.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace sconce {
namespace {

enum class Treatment : uint8_t {
  kPointwise,  // of all operands
  kImages,     // of the first, or of the list that it is: the result is contiguous or channels-last, and has its rank
  kReduces     // the first: the result is contiguous
};

// All overloads; operators in place go by the name of their functional twin.
const std::unordered_map<std::string_view, Treatment>& treatments() {
  using enum Treatment;
  static const std::unordered_map<std::string_view, Treatment> table = {
      {"aten::abs", kPointwise},
      {"aten::add", kPointwise},
      {"aten::celu", kPointwise},
      {"aten::clamp", kPointwise},
      {"aten::clamp_max", kPointwise},
      {"aten::clamp_min", kPointwise},
      {"aten::div", kPointwise},
      {"aten::elu", kPointwise},
      {"aten::erf", kPointwise},
      {"aten::exp", kPointwise},
      {"aten::gelu", kPointwise},
      {"aten::hardsigmoid", kPointwise},
      {"aten::hardswish", kPointwise},
      {"aten::hardtanh", kPointwise},
      {"aten::leaky_relu", kPointwise},
      {"aten::maximum", kPointwise},
      {"aten::minimum", kPointwise},
      {"aten::mish", kPointwise},
      {"aten::mul", kPointwise},
      {"aten::neg", kPointwise},
      {"aten::relu", kPointwise},
      {"aten::relu6", kPointwise},
      {"aten::rsqrt", kPointwise},
      {"aten::selu", kPointwise},
      {"aten::sigmoid", kPointwise},
      {"aten::silu", kPointwise},
      {"aten::softplus", kPointwise},
      {"aten::sqrt", kPointwise},
      {"aten::square", kPointwise},
      {"aten::sub", kPointwise},
      {"aten::tanh", kPointwise},
      {"aten::threshold", kPointwise},

      {"aten::_convolution", kImages},
      {"aten::adaptive_avg_pool2d", kImages},
      {"aten::avg_pool2d", kImages},
      {"aten::batch_norm", kImages},
      {"aten::cat", kImages},
      {"aten::conv2d", kImages},
      {"aten::conv_transpose2d", kImages},
      {"aten::convolution", kImages},
      {"aten::max_pool2d", kImages},
      {"aten::upsample_bilinear2d", kImages},
      {"aten::upsample_nearest2d", kImages},

      {"aten::mean", kReduces},
      {"aten::sum", kReduces},
  };
  return table;
}

std::optional<Treatment> treatment_of(const Node& node) {
  if (node.schema() == nullptr || node.outputs().size() != 1 || node.output()->type()->kind() != c10::TypeKind::TensorType) {
    return std::nullopt;
  }
  static thread_local PerSchema<std::optional<Treatment>> known;
  return known.get(*node.schema(), [](const c10::FunctionSchema& schema) -> std::optional<Treatment> {
    const c10::FunctionSchema* twin = schema.is_mutable() ? functional_variant(schema) : &schema;
    const auto found = twin == nullptr ? treatments().end() : treatments().find(twin->name());
    return found == treatments().end() ? std::nullopt : std::optional(found->second);
  });
}

bool is_int(const Value* value, int64_t wanted) { return value != nullptr && is_constant_int(*value, wanted); }

bool writes_first_operand(const Node& node) { return node.schema()->is_mutable(); }

}  // namespace

LayoutUse layout_use(const Node& node, size_t index) {
  if (reads_metadata(node)) {
    return LayoutUse::kAgnostic;
  }
  if (node.kind() == aten::flatten && node.schema() != nullptr && index == 0 && is_int(node.named_input("start_dim"), 1) &&
      (is_int(node.named_input("end_dim"), -1) || is_int(node.named_input("end_dim"), 3)) &&
      node.named_input("out_dim") == nullptr) {
    return LayoutUse::kFlattens;
  }
  const auto treatment = treatment_of(node);
  if (!treatment) {
    return LayoutUse::kSensitive;
  }
  switch (*treatment) {
    // Others are read into the memory of the first where that is written.
    case Treatment::kPointwise:
      return index > 0 && writes_first_operand(node) ? LayoutUse::kAgnostic : LayoutUse::kPreserving;
    case Treatment::kImages: return index == 0 ? LayoutUse::kPreserving : LayoutUse::kSensitive;
    case Treatment::kReduces: return index == 0 ? LayoutUse::kAgnostic : LayoutUse::kSensitive;
  }
  return LayoutUse::kSensitive;
}

bool is_pointwise(const Node& node) { return treatment_of(node) == Treatment::kPointwise; }

bool is_pointwise_of_one(const Node& node) {
  const auto is_tensor = [](const Value* input) { return input->type()->kind() == c10::TypeKind::TensorType; };
  return is_pointwise(node) && !writes_first_operand(node) &&
         std::count_if(node.inputs().begin(), node.inputs().end(), is_tensor) == 1 && is_tensor(node.input(0));
}

}  // namespace sconce
