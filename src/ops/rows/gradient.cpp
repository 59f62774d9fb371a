// LibTorch's operators for gradients of other operators, which backward texts call.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> gradient_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::elu_backward", .layout = Layout::kPointwise},
      {.name = "aten::gelu_backward", .layout = Layout::kPointwise},
      {.name = "aten::hardshrink_backward", .layout = Layout::kPointwise},
      {.name = "aten::hardsigmoid_backward", .layout = Layout::kPointwise},
      {.name = "aten::hardswish_backward", .layout = Layout::kPointwise},
      {.name = "aten::hardtanh_backward", .layout = Layout::kPointwise},
      {.name = "aten::leaky_relu_backward", .layout = Layout::kPointwise},
      {.name = "aten::mish_backward", .results = Sharing::kFresh, .layout = Layout::kPointwise},
      {.name = "aten::sigmoid_backward", .layout = Layout::kPointwise},
      {.name = "aten::silu_backward", .results = Sharing::kFresh, .layout = Layout::kPointwise},
      {.name = "aten::softplus_backward", .layout = Layout::kPointwise},
      {.name = "aten::softshrink_backward", .layout = Layout::kPointwise},
      {.name = "aten::tanh_backward", .layout = Layout::kPointwise},
      {.name = "aten::threshold_backward", .layout = Layout::kPointwise},
  };
  return rows;
}

}  // namespace sconce
