#include "analysis/in_place.h"

#include "analysis/effects.h"
#include "ops/per_schema.h"
#include "ops/schema_corrections.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace sconce {
namespace {

constexpr std::string_view kNamespace = "aten::";

std::string_view without_namespace(std::string_view name) {
  return name.starts_with(kNamespace) ? name.substr(kNamespace.size()) : std::string_view();
}

template <typename Kinds>
bool contains(const Kinds& kinds, c10::Symbol kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

// By the twin's name.
const std::unordered_map<std::string_view, VariantMatch>& fits() {
  static const std::unordered_map<std::string_view, VariantMatch> table = {
      // Of integers, too: they keep the dtype, or refuse it in both forms.
      {"celu", VariantMatch::kAlways},
      {"elu", VariantMatch::kAlways},
      {"hardsigmoid", VariantMatch::kAlways},
      {"hardswish", VariantMatch::kAlways},
      {"hardtanh", VariantMatch::kAlways},
      {"leaky_relu", VariantMatch::kAlways},
      {"mish", VariantMatch::kAlways},
      {"neg", VariantMatch::kAlways},
      {"relu", VariantMatch::kAlways},
      {"relu6", VariantMatch::kAlways},
      {"selu", VariantMatch::kAlways},
      {"silu", VariantMatch::kAlways},
      {"threshold", VariantMatch::kAlways},
      // A copy of self that is then written.
      {"copy", VariantMatch::kWithoutGradient},
      {"fill", VariantMatch::kAlways},
      {"zero", VariantMatch::kAlways},
      // They promote and broadcast.
      {"abs", VariantMatch::kPointwise},
      {"add", VariantMatch::kPointwise},
      {"ceil", VariantMatch::kPointwise},
      {"clamp", VariantMatch::kPointwise},
      {"clamp_max", VariantMatch::kPointwise},
      {"clamp_min", VariantMatch::kPointwise},
      {"cos", VariantMatch::kPointwise},
      {"div", VariantMatch::kPointwise},
      {"erf", VariantMatch::kPointwise},
      {"floor", VariantMatch::kPointwise},
      {"gelu", VariantMatch::kPointwise},
      {"lerp", VariantMatch::kPointwise},
      {"mul", VariantMatch::kPointwise},
      {"round", VariantMatch::kPointwise},
      {"sigmoid", VariantMatch::kPointwise},
      {"sign", VariantMatch::kPointwise},
      {"sin", VariantMatch::kPointwise},
      {"sqrt", VariantMatch::kPointwise},
      {"square", VariantMatch::kPointwise},
      {"sub", VariantMatch::kPointwise},
      {"tanh", VariantMatch::kPointwise},
      {"trunc", VariantMatch::kPointwise},
      {"masked_fill", VariantMatch::kContiguous},
  };
  return table;
}

bool casts_under_autocast(const c10::OperatorName& name) {
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  return !op || op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU) ||
         op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCUDA);
}

bool has_marks(const c10::Argument& argument) { return argument.alias_info() != nullptr; }

// (Tensor(a!) self, …) -> Tensor(a!), without another mark.
bool writes_and_gives_self_alone(const c10::FunctionSchema& op) {
  const auto& arguments = op.arguments();
  return !arguments.empty() && has_marks(arguments[0]) && arguments[0].alias_info()->isWrite() &&
         arguments[0].type()->kind() == c10::TypeKind::TensorType &&
         std::none_of(arguments.begin() + 1, arguments.end(), has_marks) && op.returns().size() == 1 &&
         has_marks(op.returns()[0]) && op.returns()[0].alias_info()->isWrite();
}

bool produces_new_result_of_same_arguments(const c10::FunctionSchema& twin, const c10::FunctionSchema& op) {
  return !twin.is_mutable() && !results_may_share_memory(twin) && twin.returns().size() == 1 &&
         !has_marks(twin.returns()[0]) &&
         std::equal(twin.arguments().begin(), twin.arguments().end(), op.arguments().begin(), op.arguments().end(),
                    [](const c10::Argument& a, const c10::Argument& b) {
                      return a.name() == b.name() && *a.type() == *b.type() && !has_marks(a);
                    });
}

const c10::FunctionSchema* find_functional_variant(const c10::FunctionSchema& op) {
  if (!op.name().ends_with('_') || !writes_and_gives_self_alone(op)) {
    return nullptr;
  }
  const c10::OperatorName name(op.name().substr(0, op.name().size() - 1), op.overload_name());
  const auto twin = torch::jit::findOperatorFor(name);
  return twin != nullptr && produces_new_result_of_same_arguments(twin->schema(), op) && !casts_under_autocast(name) &&
                 !casts_under_autocast(op.operator_name())
             ? &twin->schema()
             : nullptr;
}

}  // namespace

const c10::FunctionSchema* functional_variant(const c10::FunctionSchema& op) {
  static thread_local PerSchema<const c10::FunctionSchema*> known;
  return known.get(op, find_functional_variant);
}

VariantMatch variant_match(const c10::FunctionSchema& op) {
  const c10::FunctionSchema* twin = functional_variant(op);
  const auto found = twin == nullptr ? fits().end() : fits().find(without_namespace(twin->name()));
  return found == fits().end() ? VariantMatch::kNever : found->second;
}

bool backward_may_read_result(const c10::FunctionSchema& op) {
  // Their formulas in LibTorch's derivatives.yaml do not name the result.
  static const std::unordered_set<std::string_view> never = {"_convolution",
                                                             "abs",
                                                             "adaptive_avg_pool2d",
                                                             "add",
                                                             "addmm",
                                                             "avg_pool2d",
                                                             "baddbmm",
                                                             "batch_norm",
                                                             "bmm",
                                                             "cat",
                                                             "clone",
                                                             "conv1d",
                                                             "conv2d",
                                                             "conv3d",
                                                             "conv_transpose1d",
                                                             "conv_transpose2d",
                                                             "conv_transpose3d",
                                                             "convolution",
                                                             "cos",
                                                             "div",
                                                             "embedding",
                                                             "empty",
                                                             "empty_like",
                                                             "erf",
                                                             "full",
                                                             "full_like",
                                                             "gelu",
                                                             "group_norm",
                                                             "hardswish",
                                                             "index_select",
                                                             "instance_norm",
                                                             "layer_norm",
                                                             "linear",
                                                             "masked_fill",
                                                             "matmul",
                                                             "mean",
                                                             "mish",
                                                             "mm",
                                                             "mul",
                                                             "neg",
                                                             "new_empty",
                                                             "new_full",
                                                             "new_ones",
                                                             "new_zeros",
                                                             "ones",
                                                             "ones_like",
                                                             "rsub",
                                                             "silu",
                                                             "sin",
                                                             "stack",
                                                             "sub",
                                                             "where",
                                                             "zeros",
                                                             "zeros_like"};
  return !never.contains(without_namespace(op.name()));
}

bool produces_new_tensor(const Node& node) {
  // Their results may overlap themselves, or must not be written.
  static const std::array exceptions = {aten::empty_strided, aten::new_empty_strided, aten::_efficientzerotensor};
  return node.schema() != nullptr && !effects_of(node).unknown && node.outputs().size() == 1 &&
         node.schema()->returns().size() == 1 && !has_marks(node.schema()->returns()[0]) &&
         node.output()->type()->kind() == c10::TypeKind::TensorType && !results_may_share_memory(*node.schema()) &&
         !contains(exceptions, node.kind()) &&
         // TorchScript's own operators make no such promise.
         c10::Dispatcher::singleton().findSchema(node.schema()->operator_name()).has_value();
}

bool reads_sizes_or_dtype(const Node& node) {
  static const std::array kinds = {aten::size,
                                   aten::dim,
                                   aten::len,
                                   aten::is_floating_point,
                                   prim::dtype,
                                   prim::device,
                                   c10::Symbol::fromQualString("aten::numel")};
  return contains(kinds, node.kind());
}

bool reads_layout_or_version(const Node& node) {
  static const std::array kinds = {aten::stride,
                                   aten::_version,
                                   aten::as_strided,
                                   aten::as_strided_,
                                   c10::Symbol::fromQualString("aten::is_contiguous"),
                                   c10::Symbol::fromQualString("aten::data_ptr")};
  return contains(kinds, node.kind());
}

namespace {

bool is_out_argument(const c10::Argument& argument) {
  return argument.kwarg_only() && argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

}  // namespace

bool may_change_sizes(const Node& node) {
  if (effects_of(node).unknown) {
    return true;
  }
  if (node.schema() == nullptr) {
    return false;
  }
  static thread_local PerSchema<bool> known;
  return known.get(*node.schema(), [](const c10::FunctionSchema& schema) {
    const auto op = c10::Dispatcher::singleton().findSchema(schema.operator_name());
    static const std::array others = {aten::resize_, aten::resize_as_, aten::set_, aten::set_data,
                                      c10::Symbol::fromQualString("aten::resize_as_sparse_")};
    // `out=`: resized to what it is to hold.
    return (op && op->hasTag(at::Tag::inplace_view)) || contains(others, c10::Symbol::fromQualString(schema.name())) ||
           std::any_of(schema.arguments().begin(), schema.arguments().end(), is_out_argument);
  });
}

bool may_change_sizes(const Graph& graph) {
  bool may_change = false;
  for_each_node(graph.body(), [&](Node* node) { may_change = may_change || may_change_sizes(*node); });
  return may_change;
}

}  // namespace sconce
