#include "ops/cpu_autocast.h"

#include "ops/op.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace sconce {
namespace {

using Names = std::unordered_set<std::string_view>;

// The other operators with an autocast kernel for the CPU compute in float32 (aten/src/ATen/autocast_mode.cpp).
const Names kReducedOps = {"aten::_addmm_activation",
                           "aten::_convolution",
                           "aten::_native_multi_head_attention",
                           "aten::addbmm",
                           "aten::addmm",
                           "aten::baddbmm",
                           "aten::bmm",
                           "aten::conv1d",
                           "aten::conv2d",
                           "aten::conv3d",
                           "aten::conv_tbc",
                           "aten::conv_transpose1d",
                           "aten::conv_transpose2d",
                           "aten::conv_transpose3d",
                           "aten::linalg_vecdot",
                           "aten::linear",
                           "aten::matmul",
                           "aten::mkldnn_rnn_layer",
                           "aten::mm",
                           "aten::prelu",
                           "aten::scaled_dot_product_attention"};
// These are cat and stack, and operators that give all their tensors to aten::cat.
const Names kPromotedOps = {"aten::cat",    "aten::isin",       "aten::masked_scatter_backward",
                            "aten::repeat", "aten::roll",       "aten::stack",
                            "aten::tile",   "aten::unique_dim", "aten::unique_dim_consecutive"};

// Composites, and operators with names of LibTorch's own, that call no operator with an autocast kernel.
// tests/differential/registry_test.cpp watches what they call.
const Names kPlainOps = {"aten::_autocast_to_full_precision",
                         "aten::_autocast_to_reduced_precision",
                         "aten::_convolution",
                         "aten::_embedding_bag",
                         "aten::_reshape_alias",
                         "aten::_safe_softmax",
                         "aten::_scaled_dot_product_flash_attention_for_cpu",
                         "aten::_unique2",
                         "aten::_unsafe_view",
                         "aten::_weight_norm_interface",
                         "aten::absolute",
                         "aten::adaptive_avg_pool1d",
                         "aten::adaptive_avg_pool2d",
                         "aten::adaptive_max_pool1d",
                         "aten::all",
                         "aten::alpha_dropout",
                         "aten::any",
                         "aten::argsort",
                         "aten::avg_pool1d",
                         "aten::batch_norm",
                         "aten::broadcast_tensors",
                         "aten::broadcast_to",
                         "aten::chunk",
                         "aten::clip",
                         "aten::clip_",
                         "aten::contiguous",
                         "aten::cosine_similarity",
                         "aten::cumsum",
                         "aten::diagonal",
                         "aten::divide",
                         "aten::divide_",
                         "aten::dropout",
                         "aten::dropout_",
                         "aten::embedding_bag",
                         "aten::expand_as",
                         "aten::feature_dropout",
                         "aten::flatten",
                         "aten::float_power",
                         "aten::gather",
                         "aten::greater",
                         "aten::greater_equal",
                         "aten::group_norm",
                         "aten::index_add",
                         "aten::index_fill",
                         "aten::index_select",
                         "aten::instance_norm",
                         "aten::is_complex",
                         "aten::is_floating_point",
                         "aten::is_leaf",
                         "aten::is_nonzero",
                         "aten::is_signed",
                         "aten::isclose",
                         "aten::isfinite",
                         "aten::item",
                         "aten::layer_norm",
                         "aten::less",
                         "aten::less_equal",
                         "aten::log_sigmoid",
                         "aten::log_softmax",
                         "aten::logsumexp",
                         "aten::mT",
                         "aten::max",
                         "aten::max_pool1d",
                         "aten::max_pool2d",
                         "aten::mean",
                         "aten::median",
                         "aten::meshgrid",
                         "aten::min",
                         "aten::moveaxis",
                         "aten::movedim",
                         "aten::multiply",
                         "aten::multiply_",
                         "aten::narrow",
                         "aten::negative",
                         "aten::not_equal",
                         "aten::numpy_T",
                         "aten::one_hot",
                         "aten::outer",
                         "aten::pairwise_distance",
                         "aten::positive",
                         "aten::ravel",
                         "aten::relu6",
                         "aten::relu6_",
                         "aten::repeat_interleave",
                         "aten::requires_grad_",
                         "aten::reshape",
                         "aten::reshape_as",
                         "aten::result_type",
                         "aten::rms_norm",
                         "aten::rrelu",
                         "aten::scatter",
                         "aten::scatter_add",
                         "aten::select",
                         "aten::selu",
                         "aten::selu_",
                         "aten::size",
                         "aten::softmax",
                         "aten::sort",
                         "aten::split",
                         "aten::square",
                         "aten::square_",
                         "aten::squeeze",
                         "aten::squeeze_",
                         "aten::std",
                         "aten::std_mean",
                         "aten::stride",
                         "aten::subtract",
                         "aten::subtract_",
                         "aten::sum",
                         "aten::sum_to_size",
                         "aten::swapaxes",
                         "aten::swapdims",
                         "aten::take_along_dim",
                         "aten::tensor_split",
                         "aten::to",
                         "aten::transpose",
                         "aten::true_divide",
                         "aten::true_divide_",
                         "aten::type_as",
                         "aten::unbind",
                         "aten::unflatten",
                         "aten::upsample_bicubic2d",
                         "aten::upsample_bilinear2d",
                         "aten::upsample_linear1d",
                         "aten::upsample_nearest1d",
                         "aten::upsample_nearest2d",
                         "aten::upsample_nearest3d",
                         "aten::upsample_trilinear3d",
                         "aten::var",
                         "aten::var_mean",
                         "aten::view_as",
                         "aten::where"};

// Operators with kernels of their own that call operators with an autocast kernel; and index_copy, which promotes where
// without autocast it raises.
const Names kCallers = {"aten::index_copy", "aten::linalg_matrix_exp", "aten::linalg_pinv"};

// Such variants call the functional operator.
bool writes_out(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& each) {
    return each.kwarg_only() && each.alias_info() != nullptr && each.alias_info()->isWrite();
  });
}

bool takes_tensors(const c10::FunctionSchema& schema) {
  const auto holds_tensors = [](const c10::Argument& each) {
    const c10::TypeKind kind = each.type()->kind();
    return kind != c10::TypeKind::IntType && kind != c10::TypeKind::FloatType && kind != c10::TypeKind::BoolType &&
           kind != c10::TypeKind::StringType && kind != c10::TypeKind::NumberType && kind != c10::TypeKind::ComplexType &&
           kind != c10::TypeKind::NoneType;
  };
  return schema.is_vararg() || std::any_of(schema.arguments().begin(), schema.arguments().end(), holds_tensors) ||
         std::any_of(schema.returns().begin(), schema.returns().end(), holds_tensors);
}

}  // namespace

CpuAutocast cpu_autocast_of(const Op& op) {
  const std::string_view name = op.schema->name();
  if (!op.dispatched) {
    // TorchScript's own. Those without an opcode may call any operator.
    const bool is_plain = op.opcode != Opcode::kOpaque || kPlainOps.contains(name) || !takes_tensors(*op.schema);
    return is_plain ? CpuAutocast::kNothing : CpuAutocast::kUnknown;
  }
  if (!name.starts_with("aten::") || writes_out(*op.schema) || kCallers.contains(name)) {
    return CpuAutocast::kUnknown;
  }
  if (kPromotedOps.contains(name)) {
    return CpuAutocast::kPromoted;
  }
  if (op.dispatched->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) {
    return kReducedOps.contains(name) ? CpuAutocast::kReduced : CpuAutocast::kFull;
  }
  if (name == "aten::nll_loss_nd") {
    return CpuAutocast::kFull;  // it calls nll_loss or nll_loss2d with its arguments, and nothing else
  }
  // Operators with names of LibTorch's own may be whole layers (_transformer_encoder_layer_fwd).
  const bool may_call = op.dispatched->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
                        (name.starts_with("aten::_") && !op.has_tag(at::Tag::core) && !op.has_tag(at::Tag::pointwise));
  return !may_call || kPlainOps.contains(name) ? CpuAutocast::kNothing : CpuAutocast::kUnknown;
}

}  // namespace sconce
