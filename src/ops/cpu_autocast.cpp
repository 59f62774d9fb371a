#include "ops/cpu_autocast.h"

#include "ops/op.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <unordered_set>

namespace sconce {
namespace {

// Operators of `aten`.
class Names {
 public:
  explicit Names(const std::string& text) {
    std::istringstream words(text);
    names_.insert(std::istream_iterator<std::string>(words), {});
  }
  bool contains(const std::string& name) const { return name.starts_with("aten::") && names_.contains(name.substr(6)); }

 private:
  std::unordered_set<std::string> names_;
};

// The other operators with an autocast kernel for the CPU compute in float32 (aten/src/ATen/autocast_mode.cpp).
const Names kReducedOps(R"(
    _addmm_activation _convolution _native_multi_head_attention addbmm addmm baddbmm bmm conv1d conv2d conv3d conv_tbc
    conv_transpose1d conv_transpose2d conv_transpose3d linalg_vecdot linear matmul mkldnn_rnn_layer mm prelu
    scaled_dot_product_attention)");
// These are cat and stack, and operators that give all their tensors to aten::cat.
const Names kPromotedOps(R"(
    cat isin masked_scatter_backward repeat roll stack tile unique_dim unique_dim_consecutive)");

// Composites, and operators with names of LibTorch's own, that call no operator with an autocast kernel.
// tests/differential/registry_test.cpp watches what they call.
const Names kPlainOps(R"(
    _autocast_to_full_precision _autocast_to_reduced_precision _convolution _embedding_bag _reshape_alias _safe_softmax
    _scaled_dot_product_flash_attention_for_cpu _unique2 _unsafe_view _weight_norm_interface absolute
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d all alpha_dropout any argsort avg_pool1d batch_norm
    broadcast_tensors broadcast_to chunk clip clip_ contiguous cosine_similarity cumsum diagonal divide divide_ dropout
    dropout_ embedding_bag expand_as feature_dropout flatten float_power gather greater greater_equal group_norm
    index_add index_fill index_select instance_norm is_complex is_floating_point is_leaf is_nonzero is_signed isclose
    isfinite item layer_norm less less_equal log_sigmoid log_softmax logsumexp mT max max_pool1d max_pool2d mean median
    meshgrid min moveaxis movedim multiply multiply_ narrow negative not_equal numpy_T one_hot outer pairwise_distance
    positive ravel relu6 relu6_ repeat_interleave requires_grad_ reshape reshape_as result_type rms_norm rrelu scatter
    scatter_add select selu selu_ size softmax sort split square square_ squeeze squeeze_ std std_mean stride subtract
    subtract_ sum sum_to_size swapaxes swapdims take_along_dim tensor_split to transpose true_divide true_divide_
    type_as unbind unflatten upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
    upsample_nearest2d upsample_nearest3d upsample_trilinear3d var var_mean view_as where)");

// Operators with kernels of their own that call operators with an autocast kernel; and index_copy, which promotes where
// without autocast it raises.
const Names kCallers("index_copy linalg_matrix_exp linalg_pinv");

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
  const std::string& name = op.schema->name();
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
