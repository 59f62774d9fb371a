#include "ops/schema_corrections.h"

#include "ops/per_schema.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace sconce {
namespace {

const std::vector<SchemaCorrection>& corrections() {
  static const std::vector<SchemaCorrection> list = {
      // Running statistics are updated when training.
      {.op = "aten::batch_norm",
       .written = {"running_mean", "running_var"},
       .written_if = "training",
       .fresh_results = true},
      {.op = "aten::instance_norm",
       .written = {"running_mean", "running_var"},
       .written_if = "use_input_stats",
       .fresh_results = true},
      {.op = "aten::native_batch_norm", .written = {"running_mean", "running_var"}, .written_if = "training"},
      {.op = "aten::cudnn_batch_norm", .written = {"running_mean", "running_var"}, .written_if = "training"},
      {.op = "aten::miopen_batch_norm", .written = {"running_mean", "running_var"}, .written_if = "training"},
      {.op = "aten::_batch_norm_impl_index", .written = {"running_mean", "running_var"}, .written_if = "training"},
      {.op = "aten::batch_norm_gather_stats", .written = {"running_mean", "running_var"}},
      {.op = "aten::batch_norm_gather_stats_with_counts", .written = {"running_mean", "running_var"}},
      {.op = "aten::batch_norm_update_stats", .written = {"running_mean", "running_var"}},
      // Results that may be an argument or a view of one; `set_` gives its target the memory of the source.
      {.op = "aten::set_", .shared_results = true},
      {.op = "aten::set", .written = {"self"}, .shared_results = true},
      {.op = "aten::lift", .shared_results = true},
      {.op = "aten::dequantize", .shared_results = true},
      {.op = "aten::_unsafe_view", .shared_results = true},
      {.op = "aten::_lazy_clone", .shared_results = true},
      {.op = "aten::_pack_sequence", .shared_results = true},
      {.op = "aten::_transform_bias_rescale_qkv", .shared_results = true},
      {.op = "aten::_no_grad_embedding_renorm_", .written = {"weight"}, .shared_results = true},
      {.op = "aten::_foobar", .shared_results = true},
      {.op = "aten::_test_optional_filled_intlist", .shared_results = true},
      {.op = "aten::_test_optional_floatlist", .shared_results = true},
      {.op = "aten::_test_optional_intlist", .shared_results = true},
      {.op = "aten::_test_parallel_materialize", .shared_results = true},
      // Bring indices and sizes into order where they are.
      {.op = "aten::_unsafe_masked_index", .written = {"self", "mask", "indices"}},
      {.op = "aten::_unsafe_masked_index_put_accumulate", .written = {"self", "mask", "indices", "values"}},
      {.op = "prim::ReductionSizes", .written = {"size"}},
      // Composites that compute their result anew whatever their arguments are.
      {.op = "aten::linear", .fresh_results = true},
      {.op = "aten::matmul", .fresh_results = true},
      {.op = "aten::bilinear", .fresh_results = true},
      {.op = "aten::conv1d", .fresh_results = true},
      {.op = "aten::conv2d", .fresh_results = true},
      {.op = "aten::conv3d", .fresh_results = true},
      {.op = "aten::conv_transpose1d", .fresh_results = true},
      {.op = "aten::conv_transpose2d", .fresh_results = true},
      {.op = "aten::conv_transpose3d", .fresh_results = true},
      {.op = "aten::_convolution", .fresh_results = true},
      {.op = "aten::layer_norm", .fresh_results = true},
      {.op = "aten::group_norm", .fresh_results = true},
      {.op = "aten::rms_norm", .fresh_results = true},
      {.op = "aten::max_pool1d", .fresh_results = true},
      {.op = "aten::max_pool2d", .fresh_results = true},
      {.op = "aten::max_pool3d", .fresh_results = true},
      {.op = "aten::avg_pool1d", .fresh_results = true},
      {.op = "aten::adaptive_avg_pool1d", .fresh_results = true},
      {.op = "aten::adaptive_avg_pool2d", .fresh_results = true},
      {.op = "aten::adaptive_avg_pool3d", .fresh_results = true},
      {.op = "aten::softmax", .fresh_results = true},
      {.op = "aten::log_softmax", .fresh_results = true},
      {.op = "aten::cross_entropy_loss", .fresh_results = true},
      {.op = "aten::nll_loss", .fresh_results = true},
      {.op = "aten::embedding_bag", .fresh_results = true},
      {.op = "aten::scaled_dot_product_attention", .fresh_results = true},
      {.op = "aten::one_hot", .fresh_results = true},
      {.op = "aten::lstm", .fresh_results = true},
      {.op = "aten::gru", .fresh_results = true},
      {.op = "aten::rnn_tanh", .fresh_results = true},
      {.op = "aten::rnn_relu", .fresh_results = true},
      {.op = "aten::lstm_cell", .fresh_results = true},
      {.op = "aten::gru_cell", .fresh_results = true},
      {.op = "aten::relu6", .fresh_results = true},
      {.op = "aten::selu", .fresh_results = true},
      {.op = "aten::prelu", .fresh_results = true},
      {.op = "aten::square", .fresh_results = true},
      {.op = "aten::std", .fresh_results = true},
      {.op = "aten::var", .fresh_results = true},
      {.op = "aten::stack", .fresh_results = true},
      {.op = "aten::greater", .fresh_results = true},
      {.op = "aten::less", .fresh_results = true},
      {.op = "aten::subtract", .fresh_results = true},
      {.op = "aten::multiply", .fresh_results = true},
      {.op = "aten::divide", .fresh_results = true},
      {.op = "aten::true_divide", .fresh_results = true},
  };
  return list;
}

// `prim::AutogradAdd` gives back one operand when the other is undefined.
bool is_special_case_of_libtorch(const c10::FunctionSchema& schema) {
  const auto op = torch::jit::findOperatorFor(schema.operator_name());
  return op != nullptr && op->aliasAnalysisKind() == c10::AliasAnalysisKind::INTERNAL_SPECIAL_CASE;
}

bool composed_of_other_ops(const c10::FunctionSchema& schema) {
  const auto op = c10::Dispatcher::singleton().findSchema(schema.operator_name());
  return op && (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
                op->hasTag(at::Tag::maybe_aliasing_or_mutating));
}

}  // namespace

const SchemaCorrection* find_correction(const c10::FunctionSchema& schema) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const SchemaCorrection*> map;
    for (const SchemaCorrection& correction : corrections()) {
      map.emplace(correction.op, &correction);
    }
    return map;
  }();
  const auto found = by_name.find(schema.name());
  return found == by_name.end() ? nullptr : found->second;
}

bool writes_argument(const c10::FunctionSchema& schema, size_t index) {
  const c10::Argument& argument = schema.arguments()[index];
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) {
    return true;
  }
  const SchemaCorrection* correction = find_correction(schema);
  return correction != nullptr &&
         std::find(correction->written.begin(), correction->written.end(), argument.name()) != correction->written.end();
}

bool results_may_share_memory(const c10::FunctionSchema& schema) {
  static thread_local PerSchema<bool> known;
  return known.get(schema, [](const c10::FunctionSchema& asked) {
    const SchemaCorrection* correction = find_correction(asked);
    if (correction != nullptr && (correction->fresh_results || correction->shared_results)) {
      return correction->shared_results;
    }
    return composed_of_other_ops(asked) || is_special_case_of_libtorch(asked);
  });
}

std::optional<IntegerDivision> integer_division(const c10::FunctionSchema& op) {
  static const std::array names = {std::pair<std::string_view, bool>("aten::remainder", true),
                                   std::pair<std::string_view, bool>("aten::floordiv", false),
                                   std::pair<std::string_view, bool>("aten::divmod", false),
                                   std::pair<std::string_view, bool>("aten::__round_to_zero_floordiv", true)};
  const auto* found = std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.first == op.name(); });
  const bool is_of_numbers = op.overload_name() == "int" || op.overload_name().empty();
  return found != names.end() && is_of_numbers ? std::optional(IntegerDivision{found->second}) : std::nullopt;
}

bool IntegerDivision::traps(c10::ArrayRef<c10::IValue> arguments) const {
  if (arguments.size() != 2 || !arguments[0].isInt() || !arguments[1].isInt()) {
    return false;
  }
  const int64_t divisor = arguments[1].toInt();
  return (divisor == 0 && traps_on_zero) || (divisor == -1 && arguments[0].toInt() == std::numeric_limits<int64_t>::min());
}

bool copies_by_reading_no_dtype(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  if (schema.name() != "aten::to" || !schema.overload_name().starts_with("prim_")) {
    return false;
  }
  bool copies = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    if ((name == "dtype" || name == "device") && !arguments[i].isNone()) {
      return false;
    }
    copies = copies || (name == "copy" && arguments[i].toBool());
  }
  return copies;
}

}  // namespace sconce
