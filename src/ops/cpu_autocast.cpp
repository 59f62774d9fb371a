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
const Names kPromotedOps = {"aten::cat", "aten::index_copy", "aten::stack"};

// Composites that call no operator with an autocast kernel. tests/differential/registry_test.cpp watches what they call.
const Names kPlainComposites = {"aten::_autocast_to_full_precision",
                                "aten::_autocast_to_reduced_precision",
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
                                "aten::tile",
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

// Operators with kernels of their own that call operators with an autocast kernel.
const Names kCallers = {"aten::linalg_matrix_exp", "aten::linalg_pinv"};

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
    const bool is_plain = op.opcode != Opcode::kOpaque || kPlainComposites.contains(name) || !takes_tensors(*op.schema);
    return is_plain ? CpuAutocast::kNothing : CpuAutocast::kUnknown;
  }
  if (!name.starts_with("aten::")) {
    return CpuAutocast::kUnknown;
  }
  if (op.dispatched->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) {
    return kReducedOps.contains(name)    ? CpuAutocast::kReduced
           : kPromotedOps.contains(name) ? CpuAutocast::kPromoted
                                         : CpuAutocast::kFull;
  }
  if (name == "aten::nll_loss_nd") {
    return CpuAutocast::kFull;  // it calls nll_loss or nll_loss2d with its arguments, and nothing else
  }
  return op.dispatched->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)
             ? (kPlainComposites.contains(name) ? CpuAutocast::kNothing : CpuAutocast::kUnknown)
             : (kCallers.contains(name) ? CpuAutocast::kUnknown : CpuAutocast::kNothing);
}

}  // namespace sconce
