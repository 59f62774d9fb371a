// Activations.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> activation_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::celu",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .backward = "(torch.elu_backward(grad, alpha, 1, 1 / float(alpha), False, self),)"},
      {.name = "aten::elu",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .backward = "(torch.elu_backward(grad, alpha, scale, input_scale, False, self),)"},
      {.name = "aten::gelu",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kPointwise,
       .backward_ignores_result = true,
       .autocast = Autocast::kFull,
       .backward = "(torch.gelu_backward(grad, self, approximate=approximate),)"},
      {.name = "aten::glu", .backward = "(torch.glu_backward(grad, self, dim),)"},
      {.name = "aten::hardshrink", .backward = "(torch.hardshrink_backward(grad, self, lambd),)"},
      {.name = "aten::hardsigmoid",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .body = "torch.clamp_max(torch.clamp_min(self + 3, 0), 6) / 6",
       .backward = "(torch.hardsigmoid_backward(grad, self),)"},
      {.name = "aten::hardswish",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .body = "self * torch.clamp_max(torch.clamp_min(self + 3, 0), 6) / 6",
       .backward = "(torch.hardswish_backward(grad, self),)"},
      {.name = "aten::hardtanh",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .backward = "(torch.hardtanh_backward(grad, self, min_val, max_val),)"},
      {.name = "aten::leaky_relu",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .body = "torch.where(self > 0, self, self * negative_slope)",
       .backward = "(torch.leaky_relu_backward(grad, self, negative_slope, False),)"},
      {.name = "aten::log_sigmoid",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .backward = "(grad * torch.sigmoid(torch.neg(self)),)"},
      {.name = "aten::mish",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .backward_ignores_result = true,
       .backward = R"(
smooth = torch.tanh(torch.softplus(self))
return (grad * (smooth + self * torch.sigmoid(self) * (1 - smooth * smooth)),)
)"},
      {.name = "aten::prelu",
       .results = Sharing::kFresh,
       .autocast = Autocast::kReduced,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .backward = R"(
slope = weight
if self.dim() > 1:
    slope = slope.reshape([weight.numel()] + [1] * (self.dim() - 2))
of_self, each = torch._prelu_kernel_backward(grad, self, slope)
if weight.numel() == 1:
    of_weight = torch.sum(each)
elif self.dim() == 2:
    of_weight = torch.sum(each, [0])
else:
    of_weight = torch.sum(each.flatten(2), [0, 2])
return (of_self, of_weight.reshape(weight.size()))
)"},
      {.name = "aten::relu",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .body = "torch.where(self < 0, 0, self).type_as(self)",
       .backward = "(torch.threshold_backward(grad, result, 0),)"},
      {.name = "aten::relu6",
       .results = Sharing::kFresh,
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .backward = "(torch.hardtanh_backward(grad, self, 0, 6),)"},
      {.name = "aten::rrelu", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::selu",
       .results = Sharing::kFresh,
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .backward = "(torch.elu_backward(grad, 1.6732632423543772, 1.0507009873554805, 1, False, self),)"},
      {.name = "aten::sigmoid",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kPointwise,
       .body = "torch.reciprocal(1 + torch.exp(torch.neg(self)))",
       .backward = "(torch.sigmoid_backward(grad, result),)"},
      {.name = "aten::silu",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .backward_ignores_result = true,
       .body = "self * torch.sigmoid(self)",
       .backward = R"(
share = torch.sigmoid(self)
return (grad * (share * (1 + self * (1 - share))),)
)"},
      {.name = "aten::softplus",
       .layout = Layout::kPointwise,
       .autocast = Autocast::kFull,
       .backward = "(torch.softplus_backward(grad, self, beta, threshold),)"},
      {.name = "aten::softshrink", .backward = "(torch.softshrink_backward(grad, self, lambd),)"},
      {.name = "aten::threshold",
       .layout = Layout::kPointwise,
       .in_place = VariantMatch::kAlways,
       .backward = "(torch.threshold_backward(grad, self, threshold),)"},
  };
  return rows;
}

}  // namespace sconce
