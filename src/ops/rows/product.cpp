// Matrix products, recurrent layers.
#include "ops/rows.h"

namespace sconce {
namespace {

constexpr std::string_view kStateSizes = "def sizes(input: List[int], hx: List[int]):\n    return hx\n";

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

constexpr std::string_view kLayerSizes = R"(
def sizes(input: List[int], weight: List[int], bias: Optional[List[int]], back_input: Optional[List[int]],
          back_weight: Optional[List[int]], back_bias: Optional[List[int]], h: List[int]):
    return [input[0], input[1], h[0] * h[2]], h
)";

constexpr std::string_view kLstmLayerSizes = R"(
def sizes(input: List[int], weight: List[int], bias: Optional[List[int]], back_input: Optional[List[int]],
          back_weight: Optional[List[int]], back_bias: Optional[List[int]], h: List[int], c: List[int]):
    return [input[0], input[1], h[0] * h[2]], h, c
)";

constexpr std::string_view kSolutionSizes = R"(
def sizes(self: List[int], B: List[int]):
    return batch_sizes(self, B) + B[-2:]
)";
}  // namespace

std::span<const OpRow> product_rows() {
  using enum Autocast;
  using enum ResultDtype;
  using enum Sharing;
  static const std::vector<OpRow> rows = {
      {.name = "aten::addbmm", .autocast = kReduced, .result = {.dtypes = {kFirst}}, .backward = R"(
each = grad.unsqueeze(0).expand([batch1.size(0), grad.size(0), grad.size(1)])
left = torch.bmm(each, batch2.transpose(1, 2))
right = torch.bmm(batch1.transpose(1, 2), each)
return (scaled(grad, beta), scaled(left, alpha), scaled(right, alpha))
)"},
      {.name = "aten::addmm",
       .backward_ignores_result = true,
       .autocast = kReduced,
       .result = {.dtypes = {kFirst}},
       .product = MatrixProduct{.left = 1, .right = 2, .left_may_be_batch = false, .addend = 0},
       .backward = "(scaled(grad, beta), scaled(torch.mm(grad, mat2.t()), alpha), scaled(torch.mm(mat1.t(), grad), alpha))"},
      {.name = "aten::addmv", .autocast = kReduced, .result = {.dtypes = {kFirst}}, .backward = R"(
return (scaled(grad, beta), scaled(torch.outer(grad, vec), alpha), scaled(torch.mv(mat.t(), grad), alpha))
)"},
      {.name = "aten::addr", .autocast = kReduced, .backward = R"(
return (scaled(grad, beta), scaled(torch.mv(grad, vec2), alpha), scaled(torch.mv(grad.t(), vec1), alpha))
)"},
      {.name = "aten::baddbmm",
       .backward_ignores_result = true,
       .autocast = kReduced,
       .result = {.dtypes = {kFirst}},
       .arithmetic = Arithmetic::kBatchedProductAdded,
       .backward = R"(
left = torch.bmm(grad, batch2.transpose(1, 2))
right = torch.bmm(batch1.transpose(1, 2), grad)
return (scaled(grad, beta), scaled(left, alpha), scaled(right, alpha))
)"},
      {.name = "aten::bilinear", .results = kFresh, .autocast = kWidest},
      {.name = "aten::bmm",
       .opcode = Opcode::kBatchedProduct,
       .backward_ignores_result = true,
       .autocast = kReduced,
       .result = {.dtypes = {kFirst}},
       .arithmetic = Arithmetic::kBatchedProduct,
       .backward = "(torch.bmm(grad, mat2.transpose(1, 2)), torch.bmm(self.transpose(1, 2), grad))"},
      {.name = "aten::chain_matmul", .autocast = kReduced},
      {.name = "aten::cholesky_inverse", .result = {.dtypes = {kFirst}, .keeps_sizes = true}, .recorded_gradient = true},
      {.name = "aten::cross", .autocast = kWidest},
      {.name = "aten::det", .synonym_of = "aten::linalg_det"},
      {.name = "aten::dot", .autocast = kWidest, .result = {.dtypes = {kFirst}}, .backward = "(grad * tensor, grad * self)"},
      {.name = "aten::ger", .synonym_of = "aten::outer"},
      {.name = "aten::gru",
       .overloads = {"data"},
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst}, .sizes = kPackedRecurrentSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::gru",
       .overloads = {"input"},
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst}, .sizes = kRecurrentSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::gru_cell",
       .results = kFresh,
       .autocast = kReduced,
       .result = {.dtypes = {kFirst}, .sizes = kStateSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::inverse", .synonym_of = "aten::linalg_inv"},
      {.name = "aten::linalg_cholesky",
       .results = kFresh,
       .result = {.dtypes = {kFirst}, .keeps_sizes = true},
       .recorded_gradient = true},
      {.name = "aten::linalg_inv",
       .results = kFresh,
       .result = {.dtypes = {kFirst}, .keeps_sizes = true},
       .recorded_gradient = true},
      {.name = "aten::linalg_solve_triangular", .results = kFresh, .result = {.dtypes = {kFirst}, .sizes = kSolutionSizes}},
      {.name = "aten::linear",
       .results = kFresh,
       .backward_ignores_result = true,
       .autocast = kReduced,
       .result = {.dtypes = {kFirst}},
       .affine = AffineRule{},
       .product = MatrixProduct{.left = 0, .right = 1, .right_is_transposed = true, .addend = 2},
       .backward = R"(
if weight.dim() != 2:
    of_input = grad.unsqueeze(-1) * weight
    of_weight = grad.unsqueeze(-1) * input
elif input.dim() == 1:
    of_input = torch.mv(weight.t(), grad)
    of_weight = torch.outer(grad, input)
elif input.dim() == 2:
    of_input = torch.mm(grad, weight)
    of_weight = torch.mm(grad.t(), input)
else:
    of_input = torch.matmul(grad, weight)
    of_weight = torch.mm(grad.flatten(0, -2).t(), input.flatten(0, -2))
return (of_input, of_weight, grad)
)"},
      {.name = "aten::lstm",
       .overloads = {"data"},
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst, kFirst}, .sizes = kPackedLstmSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::lstm",
       .overloads = {"input"},
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst, kFirst}, .sizes = kLstmSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::lstm_cell",
       .results = kFresh,
       .autocast = kReduced,
       .result = {.dtypes = {kFirst, kFirst},
                  .sizes = "def sizes(input: List[int], hx: List[List[int]]):\n    return (hx[0], hx[1])\n"},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::matmul",
       .results = kFresh,
       .backward_ignores_result = true,
       .autocast = kReduced,
       .result = {.dtypes = {kFirst}},
       .product = MatrixProduct{.left = 0, .right = 1},
       .backward = R"(
if self.dim() == 2 and other.dim() == 2:
    left = torch.mm(grad, other.t())
    right = torch.mm(self.t(), grad)
elif self.dim() == 1 and other.dim() == 1:
    left = grad * other
    right = grad * self
elif other.dim() == 1:
    left = grad.unsqueeze(-1) * other
    right = torch.mv(self.flatten(0, -2).t(), grad.flatten())
elif self.dim() == 1:
    left = torch.matmul(other, grad.unsqueeze(-1)).squeeze(-1)
    right = self.unsqueeze(-1) * grad.unsqueeze(-2)
elif other.dim() == 2:
    left = torch.matmul(grad, other.t())
    right = torch.mm(self.flatten(0, -2).t(), grad.flatten(0, -2))
else:
    left = torch.matmul(grad, other.transpose(-2, -1))
    right = torch.matmul(self.transpose(-2, -1), grad)
return (left, right)
)"},
      // Its last result is a workspace for backward, whose size oneDNN chooses.
      {.name = "aten::mkldnn_rnn_layer",
       .results = kFresh,
       .needs_grad_mode = true,
       .result = {.dtypes = {kFirst, kFirst, kFirst}, .sizes = R"(
def sizes(input: List[int], weight0: List[int], weight1: List[int], weight2: List[int], weight3: List[int],
          hx_: List[int], cx_: List[int], reverse: bool, batch_sizes: List[int], mode: int, hidden_size: int):
    return ([input[0], input[1], hidden_size], hx_, cx_)
)"}},
      // The gradients of both biases are one tensor.
      {.name = "aten::mkldnn_rnn_layer_backward",
       .results = kShared,
       .result = {.dtypes = {kFirst, kFirst, kFirst, kFirst, kFirst, kFirst, kFirst}, .sizes = R"(
def sizes(input: List[int], weight1: List[int], weight2: List[int], weight3: List[int], weight4: List[int],
          hx_: List[int], cx_tmp: List[int]):
    return (input, weight1, weight2, weight3, weight4, hx_, cx_tmp)
)"}},
      {.name = "aten::mm",
       .backward_ignores_result = true,
       .autocast = kReduced,
       .result = {.dtypes = {kFirst}, .accepts_sparse = true},
       .product = MatrixProduct{.left = 0, .right = 1, .left_may_be_batch = false},
       .backward = "(torch.mm(grad, mat2.t()), torch.mm(self.t(), grad))"},
      {.name = "aten::mv",
       .autocast = kReduced,
       .result = {.dtypes = {kFirst}},
       .backward = "(torch.outer(grad, vec), torch.mv(self.t(), grad))"},
      {.name = "aten::outer",
       .backward = "(torch.mv(grad, vec2), torch.mv(grad.t(), self))",
       .differentiable_if = "self.dtype == vec2.dtype"},
      {.name = "aten::rnn_relu",
       .overloads = {"data"},
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst}, .sizes = kPackedRecurrentSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::rnn_relu",
       .overloads = {"input"},
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst}, .sizes = kRecurrentSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::rnn_relu_cell",
       .autocast = kReduced,
       .result = {.dtypes = {kFirst}, .sizes = kStateSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::rnn_tanh",
       .overloads = {"data"},
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst}, .sizes = kPackedRecurrentSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::rnn_tanh",
       .overloads = {"input"},
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst}, .sizes = kRecurrentSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::rnn_tanh_cell",
       .autocast = kReduced,
       .result = {.dtypes = {kFirst}, .sizes = kStateSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "aten::tensordot", .autocast = kWidest},
      {.name = "aten::_thnn_fused_gru_cell", .autocast = kReduced},
      {.name = "aten::_thnn_fused_lstm_cell", .autocast = kReduced},
      {.name = "aten::vdot", .backward = "(grad * other, grad * self)"},
      // sconce's own (kernels/recurrent_layers.cpp)
      {.name = "sconce::lstm_layer",
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst, kFirst}, .sizes = kLstmLayerSizes},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "sconce::lstm_layer_backward",
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst, kFirst}, .sizes = R"(
def sizes(kept: List[int], weight: List[int], c: List[int]):
    return [kept[0], kept[1], 4 * c[1]], c, c
)"},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "sconce::lstm_layer_for_gradients",
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst, kFirst, kFirst}, .sizes = R"(
def sizes(input: List[int], weight: List[int], bias: Optional[List[int]], h: List[int], c: List[int]):
    return [input[0], input[1], h[1]], h, c, [input[0], input[1], 5 * h[1]]
)"},
       .arithmetic = Arithmetic::kRecurrent},
      {.name = "sconce::recurrent_layer",
       .results = kFresh,
       .result = {.dtypes = {kFirst, kFirst}, .sizes = kLayerSizes},
       .arithmetic = Arithmetic::kRecurrent},
  };
  return rows;
}

}  // namespace sconce
