// Matrix products, convolutions, attention, recurrent layers.
#include "ops/rows.h"

namespace sconce {
namespace {

constexpr std::string_view kLstmSizes = R"(
def sizes(input: List[int], hx: List[List[int]], params: List[List[int]], has_biases: bool, num_layers: int,
          dropout: float, train: bool, bidirectional: bool):
    out = input.copy()
    out[-1] = hx[0][-1] * 2 if bidirectional else hx[0][-1]
    return out, hx[0], hx[1]
)";

constexpr std::string_view kPackedLstmSizes = R"(
def sizes(data: List[int], batch_sizes: List[int], hx: List[List[int]], params: List[List[int]], has_biases: bool,
          num_layers: int, dropout: float, train: bool, bidirectional: bool):
    return [data[0], hx[0][-1] * 2 if bidirectional else hx[0][-1]], hx[0], hx[1]
)";

constexpr std::string_view kRecurrentSizes = R"(
def sizes(input: List[int], hx: List[int], params: List[List[int]], has_biases: bool, num_layers: int, dropout: float,
          train: bool, bidirectional: bool):
    out = input.copy()
    out[-1] = hx[-1] * 2 if bidirectional else hx[-1]
    return out, hx
)";

constexpr std::string_view kPackedRecurrentSizes = R"(
def sizes(data: List[int], batch_sizes: List[int], hx: List[int], params: List[List[int]], has_biases: bool,
          num_layers: int, dropout: float, train: bool, bidirectional: bool):
    return [data[0], hx[-1] * 2 if bidirectional else hx[-1]], hx
)";

}  // namespace

std::span<const OpRow> product_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::addbmm", .autocast = Autocast::kReduced},
      {.name = "aten::addmm",
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .product = MatrixProduct{.left = 1, .right = 2, .left_may_be_batch = false, .addend = 0}},
      {.name = "aten::addmv", .autocast = Autocast::kReduced},
      {.name = "aten::addr", .autocast = Autocast::kReduced},
      {.name = "aten::baddbmm", .backward_ignores_result = true, .autocast = Autocast::kReduced},
      {.name = "aten::bilinear", .results = Sharing::kFresh, .autocast = Autocast::kWidest},
      {.name = "aten::bmm", .backward_ignores_result = true, .autocast = Autocast::kReduced},
      {.name = "aten::chain_matmul", .autocast = Autocast::kReduced},
      {.name = "aten::conv1d",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{}},
      {.name = "aten::conv2d",
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{}},
      {.name = "aten::conv3d",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{}},
      {.name = "aten::conv_tbc", .autocast = Autocast::kReduced},
      {.name = "aten::conv_transpose1d",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{.transposed = true}},
      {.name = "aten::conv_transpose2d",
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{.transposed = true}},
      {.name = "aten::conv_transpose3d",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{.transposed = true}},
      {.name = "aten::_convolution",
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{.accepts_batches_only = true}},
      {.name = "aten::convolution",
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .affine = AffineRule{.accepts_batches_only = true}},
      {.name = "aten::cross", .autocast = Autocast::kWidest},
      {.name = "aten::cudnn_convolution", .autocast = Autocast::kReduced},
      {.name = "aten::cudnn_convolution_transpose", .autocast = Autocast::kReduced},
      {.name = "aten::det", .synonym_of = "aten::linalg_det"},
      {.name = "aten::dot", .autocast = Autocast::kWidest},
      {.name = "aten::ger", .synonym_of = "aten::outer"},
      {.name = "aten::gru",
       .overloads = {"data"},
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = kPackedRecurrentSizes}},
      {.name = "aten::gru",
       .overloads = {"input"},
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = kRecurrentSizes}},
      {.name = "aten::gru_cell", .results = Sharing::kFresh, .autocast = Autocast::kReduced},
      {.name = "aten::linear",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .affine = AffineRule{},
       .product = MatrixProduct{.left = 0, .right = 1, .right_is_transposed = true, .addend = 2}},
      {.name = "aten::lstm",
       .overloads = {"data"},
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = kPackedLstmSizes}},
      {.name = "aten::lstm",
       .overloads = {"input"},
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = kLstmSizes}},
      {.name = "aten::lstm_cell", .results = Sharing::kFresh, .autocast = Autocast::kReduced},
      {.name = "aten::matmul",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .product = MatrixProduct{.left = 0, .right = 1}},
      {.name = "aten::mm",
       .backward_ignores_result = true,
       .autocast = Autocast::kReduced,
       .result = {.accepts_sparse = true},
       .product = MatrixProduct{.left = 0, .right = 1, .left_may_be_batch = false},
       .backward = "(torch.mm(grad, mat2.t()), torch.mm(self.t(), grad))"},
      {.name = "aten::mv", .autocast = Autocast::kReduced},
      {.name = "aten::_native_multi_head_attention",
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = R"(
def sizes(query: List[int]):
    return query
)"}},
      {.name = "aten::rnn_relu",
       .overloads = {"data"},
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = kPackedRecurrentSizes}},
      {.name = "aten::rnn_relu",
       .overloads = {"input"},
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = kRecurrentSizes}},
      {.name = "aten::rnn_relu_cell", .autocast = Autocast::kReduced},
      {.name = "aten::rnn_tanh",
       .overloads = {"data"},
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = kPackedRecurrentSizes}},
      {.name = "aten::rnn_tanh",
       .overloads = {"input"},
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = kRecurrentSizes}},
      {.name = "aten::rnn_tanh_cell", .autocast = Autocast::kReduced},
      {.name = "aten::scaled_dot_product_attention",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = R"(
def sizes(query: List[int], key: List[int], value: List[int]):
    rank = max(len(query), max(len(key), len(value)))
    out: List[int] = []
    for i in range(rank - 2):
        size = 1
        for batch in [value, key, query]:
            at = i + len(batch) - rank
            if at >= 0:
                size = size if batch[at] == 1 else batch[at]
        out.append(size)
    out.append(query[-2])
    out.append(value[-1])
    return out
)"}},
      {.name = "aten::tensordot", .autocast = Autocast::kWidest},
      {.name = "aten::_thnn_fused_gru_cell", .autocast = Autocast::kReduced},
      {.name = "aten::_thnn_fused_lstm_cell", .autocast = Autocast::kReduced},
      {.name = "aten::_transform_bias_rescale_qkv", .results = Sharing::kShared},
      {.name = "aten::_transformer_encoder_layer_fwd", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
  };
  return rows;
}

}  // namespace sconce
