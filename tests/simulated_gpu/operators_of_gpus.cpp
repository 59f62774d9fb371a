#include "tests/simulated_gpu/operators_of_gpus.h"

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace sconce::testing {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

at::Tensor with_bias(const at::Tensor& gates, const MaybeTensor& bias) { return bias ? gates + *bias : gates; }
at::Tensor sum_of_bias(const at::Tensor& gradient, bool has_bias) { return has_bias ? gradient.sum(0) : at::Tensor(); }
at::Tensor or_zeros(const MaybeTensor& gradient, const at::Tensor& like) {
  return gradient ? *gradient : at::zeros_like(like);
}
at::Tensor of_sigmoid(const at::Tensor& result) { return result * (1 - result); }
at::Tensor of_tanh(const at::Tensor& result) { return 1 - result * result; }

at::Tensor conv_depthwise2d(const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef /*kernel_size*/,
                            const MaybeTensor& bias, at::IntArrayRef stride, at::IntArrayRef padding,
                            at::IntArrayRef dilation) {
  return at::conv2d(input, weight, bias, stride, padding, dilation, /*groups=*/input.size(1));
}

// The workspace has the gates after their functions: [input, forget, cell, output].
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx, const MaybeTensor& input_bias,
                                                         const MaybeTensor& hidden_bias) {
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const at::Tensor input = gates[0].sigmoid();
  const at::Tensor forget = gates[1].sigmoid();
  const at::Tensor cell = gates[2].tanh();
  const at::Tensor output = gates[3].sigmoid();
  const at::Tensor cy = forget * cx + input * cell;
  return {output * cy.tanh(), cy, at::cat({input, forget, cell, output}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const MaybeTensor& grad_hy, const MaybeTensor& grad_cy,
                                                                  const at::Tensor& cx, const at::Tensor& cy,
                                                                  const at::Tensor& workspace, bool has_bias) {
  if (!grad_hy && !grad_cy) {
    return {};
  }
  const auto gates = workspace.chunk(4, 1);
  const at::Tensor of_hy = or_zeros(grad_hy, cy);
  const at::Tensor tanh_of_cy = cy.tanh();
  const at::Tensor of_cy = of_hy * gates[3] * of_tanh(tanh_of_cy) + or_zeros(grad_cy, cy);
  const at::Tensor of_gates = at::cat({of_cy * gates[2] * of_sigmoid(gates[0]), of_cy * cx * of_sigmoid(gates[1]),
                                       of_cy * gates[0] * of_tanh(gates[2]), of_hy * tanh_of_cy * of_sigmoid(gates[3])},
                                      1);
  return {of_gates, of_cy * gates[1], sum_of_bias(of_gates, has_bias)};
}

// The workspace is [reset, update, new, hx, the hidden state's part of new].
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                            const at::Tensor& hx, const MaybeTensor& input_bias,
                                            const MaybeTensor& hidden_bias) {
  const auto of_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto of_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const at::Tensor reset = (of_input[0] + of_hidden[0]).sigmoid();
  const at::Tensor update = (of_input[1] + of_hidden[1]).sigmoid();
  const at::Tensor made = (of_input[2] + reset * of_hidden[2]).tanh();
  return {made + update * (hx - made), at::cat({reset, update, made, hx, of_hidden[2]}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& grad_hy,
                                                                                         const at::Tensor& workspace,
                                                                                         bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const at::Tensor of_update = grad_hy * (saved[3] - saved[2]) * of_sigmoid(saved[1]);
  const at::Tensor of_new = grad_hy * (1 - saved[1]) * of_tanh(saved[2]);
  const at::Tensor of_reset = of_new * saved[4] * of_sigmoid(saved[0]);
  const at::Tensor of_input = at::cat({of_reset, of_update, of_new}, 1);
  const at::Tensor of_hidden = at::cat({of_reset, of_update, of_new * saved[0]}, 1);
  return {of_input, of_hidden, grad_hy * saved[1], sum_of_bias(of_input, has_bias), sum_of_bias(of_hidden, has_bias)};
}

}  // namespace

OperatorsOfGpus::OperatorsOfGpus() {
  operators_.impl("_conv_depthwise2d", conv_depthwise2d);
  operators_.impl("_thnn_fused_lstm_cell", lstm_cell);
  operators_.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  operators_.impl("_thnn_fused_gru_cell", gru_cell);
  operators_.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

bool OperatorsOfGpus::contain(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name == "aten::_conv_depthwise2d" || name.starts_with("aten::_thnn_fused");
}

}  // namespace sconce::testing
