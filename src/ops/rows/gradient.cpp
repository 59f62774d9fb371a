// LibTorch's operators for gradients of other operators, which backward texts call.
#include "ops/rows.h"

#include <string>

namespace sconce {

namespace {

// The gradient of an operand whose sizes are an argument.
constexpr std::string_view kInputSizes = R"(
def sizes(grad: List[int], input_sizes: List[int]):
    return input_sizes
)";

// The gradient of the second argument.
constexpr std::string_view kSizesOfSecond = R"(
def sizes(grad: List[int], input: List[int]):
    return input
)";

// The gradient of the third argument's source, or of an operand whose sizes are the third argument.
constexpr std::string_view kSizesOfThird = R"(
def sizes(grad: List[int], other: List[int], sizes: List[int]):
    return sizes
)";

// The sizes of two operands that broadcast.
std::string broadcast_sizes(const std::string& arguments) {
  return "\ndef sizes(" + arguments + R"():
    rank = max(len(input), len(other))
    out: List[int] = []
    for i in range(rank):
        size = 1
        if i >= rank - len(input):
            size = input[i - rank + len(input)]
        if i >= rank - len(other):
            of_other = other[i - rank + len(other)]
            size = of_other if size == 1 else size
        out.append(size)
    return out
)";
}

// Indices and classes among the elements are those that forward has checked.
std::vector<OpRow> take_what_forward_took(std::vector<OpRow> rows) {
  for (OpRow& row : rows) {
    row.raises = Raises::kByForm;
  }
  return rows;
}

}  // namespace

std::span<const OpRow> gradient_rows() {
  using enum ResultDtype;
  using enum Sharing;
  static const std::string sizes_of_loss = broadcast_sizes("grad: List[int], input: List[int], other: List[int]");
  static const std::string sizes_of_dropout = broadcast_sizes("input: List[int], other: List[int]");
  const ResultRule like_second = {.dtypes = {kFirst}, .sizes = kSizesOfSecond};
  const ResultRule like_third = {.dtypes = {kFirst}, .sizes = kSizesOfThird};
  static const std::vector<OpRow> rows = take_what_forward_took({
      {.name = "aten::_adaptive_avg_pool2d_backward", .result = like_second},
      {.name = "aten::_adaptive_avg_pool3d_backward", .results = kFresh, .result = like_second},
      {.name = "aten::_cdist_backward", .result = like_second},
      {.name = "aten::_log_softmax_backward_data", .result = {.dtypes = {kFirst}, .keeps_sizes = true}},
      {.name = "aten::_prelu_kernel_backward", .results = kFresh, .result = {.dtypes = {kFirst, kFirst}, .sizes = R"(
def sizes(grad: List[int], self: List[int]):
    return (self, self)
)"}},
      {.name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       .result = {.dtypes = {kFirst, kFirst, kFirst}, .sizes = R"(
def sizes(grad: List[int], query: List[int], key: List[int], value: List[int]):
    return (query, key, value)
)"}},
      {.name = "aten::_softmax_backward_data", .result = {.dtypes = {kFirst}, .keeps_sizes = true}},
      {.name = "aten::_upsample_bicubic2d_aa_backward", .result = like_third},
      {.name = "aten::_upsample_bilinear2d_aa_backward", .result = like_third},
      {.name = "aten::_upsample_nearest_exact1d_backward", .result = like_third},
      {.name = "aten::_upsample_nearest_exact2d_backward", .result = like_third},
      {.name = "aten::_upsample_nearest_exact3d_backward", .result = like_third},
      {.name = "aten::adaptive_max_pool2d_backward", .result = like_second},
      {.name = "aten::adaptive_max_pool3d_backward", .result = like_second},
      {.name = "aten::avg_pool2d_backward", .result = like_second},
      {.name = "aten::binary_cross_entropy_backward", .result = like_second},
      {.name = "aten::convolution_backward",
       .result = {.dtypes = {kFirst, kFirst, kFirst}, .sizes = R"(
def sizes(grad: List[int], input: List[int], weight: List[int]):
    return (input, weight, [grad[1]])
)"},
       .arithmetic = Arithmetic::kConvolutionGradient},
      {.name = "aten::diagonal_backward", .result = {.dtypes = {kFirst}, .sizes = kInputSizes}},
      {.name = "aten::elu_backward", .layout = Layout::kPointwise},
      {.name = "aten::embedding_dense_backward", .result = {.dtypes = {kFirst}, .sizes = R"(
def sizes(grad: List[int], indices: List[int], num_weights: int):
    return [num_weights, grad[-1]]
)"}},
      {.name = "aten::gelu_backward", .layout = Layout::kPointwise},
      {.name = "aten::glu_backward", .results = kFresh, .result = like_second},
      {.name = "aten::hardshrink_backward", .layout = Layout::kPointwise},
      {.name = "aten::hardsigmoid_backward", .layout = Layout::kPointwise},
      {.name = "aten::hardswish_backward", .layout = Layout::kPointwise},
      {.name = "aten::hardtanh_backward", .layout = Layout::kPointwise},
      {.name = "aten::huber_loss_backward", .results = kFresh, .result = {.dtypes = {kPromoted}, .sizes = sizes_of_loss}},
      {.name = "aten::leaky_relu_backward", .layout = Layout::kPointwise},
      {.name = "aten::log_sigmoid_backward", .results = kFresh, .result = like_second},
      {.name = "aten::masked_scatter_backward", .results = kFresh, .result = like_third},
      {.name = "aten::max_pool2d_with_indices_backward", .result = like_second},
      {.name = "aten::max_pool3d_with_indices_backward", .results = kFresh, .result = like_second},
      {.name = "aten::mish_backward", .results = kFresh, .layout = Layout::kPointwise},
      {.name = "aten::mse_loss_backward", .result = {.dtypes = {kPromoted}, .sizes = sizes_of_loss}},
      {.name = "aten::multi_margin_loss_backward", .result = like_second},
      {.name = "aten::multilabel_margin_loss_backward", .result = like_second},
      {.name = "aten::native_batch_norm_backward", .result = {.dtypes = {kFirst, kFirst, kFirst}, .sizes = R"(
def sizes(grad: List[int], input: List[int]):
    return (input, [input[1]], [input[1]])
)"}},
      {.name = "aten::native_dropout_backward",
       .result = {.dtypes = {kFloating}, .sizes = sizes_of_dropout},
       .backward = "(torch.native_dropout_backward(grad, mask, scale),)"},
      {.name = "aten::native_layer_norm_backward", .result = {.dtypes = {kFirst, kFirst, kFirst}, .sizes = R"(
def sizes(grad: List[int], input: List[int], normalized_shape: List[int]):
    return (input, normalized_shape, normalized_shape)
)"}},
      {.name = "aten::nll_loss2d_backward", .result = like_second},
      {.name = "aten::nll_loss_backward", .result = like_second},
      {.name = "aten::reflection_pad1d_backward", .result = like_second},
      {.name = "aten::reflection_pad2d_backward", .results = kFresh, .result = like_second},
      {.name = "aten::replication_pad1d_backward", .result = like_second},
      {.name = "aten::replication_pad2d_backward", .results = kFresh, .result = like_second},
      {.name = "aten::replication_pad3d_backward", .results = kFresh, .result = like_second},
      {.name = "aten::select_backward", .result = {.dtypes = {kFirst}, .sizes = kInputSizes}},
      {.name = "aten::sigmoid_backward", .layout = Layout::kPointwise},
      {.name = "aten::silu_backward", .results = kFresh, .layout = Layout::kPointwise},
      {.name = "aten::slice_backward", .result = {.dtypes = {kFirst}, .sizes = kInputSizes}},
      {.name = "aten::smooth_l1_loss_backward",
       .results = kFresh,
       .result = {.dtypes = {kPromoted}, .sizes = sizes_of_loss}},
      {.name = "aten::soft_margin_loss_backward", .results = kFresh, .result = like_second},
      {.name = "aten::softplus_backward", .layout = Layout::kPointwise},
      {.name = "aten::softshrink_backward", .layout = Layout::kPointwise},
      {.name = "aten::tanh_backward", .layout = Layout::kPointwise},
      {.name = "aten::threshold_backward", .layout = Layout::kPointwise},
      {.name = "aten::unfold_backward", .results = kFresh, .result = {.dtypes = {kFirst}, .sizes = kInputSizes}},
      {.name = "aten::upsample_bicubic2d_backward", .result = like_third},
      {.name = "aten::upsample_bilinear2d_backward", .result = like_third},
      {.name = "aten::upsample_linear1d_backward", .result = like_third},
      {.name = "aten::upsample_nearest1d_backward", .result = like_third},
      {.name = "aten::upsample_nearest2d_backward", .result = like_third},
      {.name = "aten::upsample_nearest3d_backward", .result = like_third},
      {.name = "aten::upsample_trilinear3d_backward", .result = like_third},
      {.name = "aten::value_selecting_reduction_backward", .result = {.dtypes = {kFirst}, .sizes = R"(
def sizes(grad: List[int], dim: int, indices: List[int], sizes: List[int]):
    return sizes
)"}},
  });
  return rows;
}

}  // namespace sconce
