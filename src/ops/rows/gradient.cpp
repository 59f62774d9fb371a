// LibTorch's operators for gradients of other operators, which backward texts call.
#include "ops/rows.h"

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

}  // namespace

std::span<const OpRow> gradient_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::_adaptive_avg_pool2d_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::_adaptive_avg_pool3d_backward",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::_log_softmax_backward_data", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::_prelu_kernel_backward", .results = Sharing::kFresh},
      {.name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = R"(
def sizes(grad: List[int], query: List[int], key: List[int], value: List[int]):
    return (query, key, value)
)"}},
      {.name = "aten::_softmax_backward_data", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::avg_pool2d_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::binary_cross_entropy_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::convolution_backward",
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = R"(
def sizes(grad: List[int], input: List[int], weight: List[int]):
    return (input, weight)
)"}},
      {.name = "aten::diagonal_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kInputSizes}},
      {.name = "aten::elu_backward", .layout = Layout::kPointwise},
      {.name = "aten::embedding_dense_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = R"(
def sizes(grad: List[int], indices: List[int], num_weights: int):
    return [num_weights, grad[-1]]
)"}},
      {.name = "aten::gelu_backward", .layout = Layout::kPointwise},
      {.name = "aten::glu_backward",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::hardshrink_backward", .layout = Layout::kPointwise},
      {.name = "aten::hardsigmoid_backward", .layout = Layout::kPointwise},
      {.name = "aten::hardswish_backward", .layout = Layout::kPointwise},
      {.name = "aten::hardtanh_backward", .layout = Layout::kPointwise},
      {.name = "aten::huber_loss_backward",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::leaky_relu_backward", .layout = Layout::kPointwise},
      {.name = "aten::log_sigmoid_backward",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::masked_scatter_backward", .results = Sharing::kFresh},
      {.name = "aten::max_pool2d_with_indices_backward",
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::max_pool3d_with_indices_backward",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::mse_loss_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::mish_backward", .results = Sharing::kFresh, .layout = Layout::kPointwise},
      {.name = "aten::native_batch_norm_backward",
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = R"(
def sizes(grad: List[int], input: List[int]):
    return (input, [input[1]], [input[1]])
)"}},
      {.name = "aten::native_layer_norm_backward",
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = R"(
def sizes(grad: List[int], input: List[int], normalized_shape: List[int]):
    return (input, normalized_shape, normalized_shape)
)"}},
      {.name = "aten::nll_loss2d_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::nll_loss_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::reflection_pad2d_backward",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::replication_pad2d_backward",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::replication_pad3d_backward",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::select_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kInputSizes}},
      {.name = "aten::sigmoid_backward", .layout = Layout::kPointwise},
      {.name = "aten::silu_backward", .results = Sharing::kFresh, .layout = Layout::kPointwise},
      {.name = "aten::slice_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kInputSizes}},
      {.name = "aten::smooth_l1_loss_backward",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::soft_margin_loss_backward",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfSecond}},
      {.name = "aten::softplus_backward", .layout = Layout::kPointwise},
      {.name = "aten::softshrink_backward", .layout = Layout::kPointwise},
      {.name = "aten::tanh_backward", .layout = Layout::kPointwise},
      {.name = "aten::threshold_backward", .layout = Layout::kPointwise},
      {.name = "aten::unfold_backward", .results = Sharing::kFresh},
      {.name = "aten::value_selecting_reduction_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = R"(
def sizes(grad: List[int], dim: int, indices: List[int], sizes: List[int]):
    return sizes
)"}},
  };
  return rows;
}

}  // namespace sconce
