// Elementary functions, element by element.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> function_rows() {
  using enum Autocast;
  using enum Sharing;
  using enum VariantMatch;
  static const std::vector<OpRow> rows = {
      {.name = "aten::acos",
       .in_place = kPointwise,
       .autocast = kFull,
       .backward = "(torch.neg(grad) * torch.rsqrt(1 - self * self),)"},
      {.name = "aten::acosh", .backward = "(grad * torch.rsqrt(self * self - 1),)"},
      {.name = "aten::arccos", .synonym_of = "aten::acos"},
      {.name = "aten::arccosh", .synonym_of = "aten::acosh"},
      {.name = "aten::arcsin", .synonym_of = "aten::asin"},
      {.name = "aten::arcsinh", .synonym_of = "aten::asinh"},
      {.name = "aten::arctan", .synonym_of = "aten::atan"},
      {.name = "aten::arctan2", .synonym_of = "aten::atan2"},
      {.name = "aten::arctanh", .synonym_of = "aten::atanh"},
      {.name = "aten::asin",
       .in_place = kPointwise,
       .autocast = kFull,
       .backward = "(grad * torch.rsqrt(1 - self * self),)"},
      {.name = "aten::asinh", .backward = "(grad * torch.rsqrt(self * self + 1),)"},
      {.name = "aten::atan", .in_place = kPointwise, .backward = "(grad / (self * self + 1),)"},
      {.name = "aten::atan2", .in_place = kPointwise, .autocast = kWidest, .backward = R"(
scaled = torch.where((self == 0) & (other == 0), 0, grad / (self * self + other * other))
return (scaled * other, torch.neg(scaled) * self)
)"},
      {.name = "aten::atanh", .backward = "(grad / (1 - self * self),)"},
      {.name = "aten::cos",
       .opcode = Opcode::kCos,
       .in_place = kPointwise,
       .backward_ignores_result = true,
       .backward = "(torch.neg(grad) * torch.sin(self),)"},
      {.name = "aten::cosh", .in_place = kPointwise, .autocast = kFull, .backward = "(grad * torch.sinh(self),)"},
      {.name = "aten::digamma", .in_place = kPointwise, .backward = "(grad * torch.polygamma(1, self),)"},
      {.name = "aten::erf",
       .opcode = Opcode::kErf,
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .backward_ignores_result = true,
       .backward = "(grad * 1.1283791670955126 * torch.exp(torch.neg(self * self)),)"},
      {.name = "aten::erfc",
       .in_place = kPointwise,
       .backward = "(grad * -1.1283791670955126 * torch.exp(torch.neg(self * self)),)"},
      {.name = "aten::erfinv", .in_place = kPointwise, .autocast = kFull, .backward = R"(
place = torch.erfinv(self)
return (grad * 0.8862269254527579 * torch.exp(place * place),)
)"},
      {.name = "aten::exp",
       .opcode = Opcode::kExp,
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .autocast = kFull,
       .backward = "(grad * result,)"},
      {.name = "aten::exp2", .in_place = kPointwise, .backward = "(grad * result * 0.6931471805599453,)"},
      {.name = "aten::expm1",
       .opcode = Opcode::kExpm1,
       .in_place = kPointwise,
       .autocast = kFull,
       .backward = "(grad * (result + 1),)"},
      {.name = "aten::hypot", .in_place = kPointwise, .backward = "(grad * (self / result), grad * (other / result))"},
      {.name = "aten::lgamma", .in_place = kPointwise, .backward = "(grad * torch.digamma(self),)"},
      {.name = "aten::log", .opcode = Opcode::kLog, .in_place = kPointwise, .autocast = kFull, .backward = "(grad / self,)"},
      {.name = "aten::log10", .in_place = kPointwise, .autocast = kFull, .backward = "(grad / (self * 2.302585092994046),)"},
      {.name = "aten::log1p",
       .opcode = Opcode::kLog1p,
       .in_place = kPointwise,
       .autocast = kFull,
       .backward = "(grad / (self + 1),)"},
      {.name = "aten::log2", .in_place = kPointwise, .autocast = kFull, .backward = "(grad / (self * 0.6931471805599453),)"},
      {.name = "aten::logaddexp",
       .backward = "(grad / (1 + torch.exp(other - self)), grad / (1 + torch.exp(self - other)))"},
      {.name = "aten::logaddexp2", .recorded_gradient = true},
      {.name = "aten::logit", .in_place = kPointwise, .backward = R"(
of_self = grad / (self * (1 - self))
low = 0.0 if eps is None else eps
outside = 0.0 if eps is not None else float("nan")
return (torch.where((self < low) | (self > 1 - low), outside, of_self),)
)"},
      {.name = "aten::mvlgamma", .recorded_gradient = true},
      {.name = "aten::polygamma", .recorded_gradient = true},
      {.name = "aten::pow", .opcode = Opcode::kPow, .in_place = kPointwise, .autocast = kFull, .backward = R"(
if exponent == 0:
    of_self = torch.zeros_like(grad)
else:
    of_self = grad * (torch.pow(self, exponent - 1) * exponent)
return (of_self,)
)"},
      {.name = "aten::pow",
       .overloads = {"Tensor_Tensor"},
       .opcode = Opcode::kPow,
       .in_place = kPointwise,
       .autocast = kFull,
       .backward = R"(
of_self = torch.where(exponent == 0, 0, grad * (torch.pow(self, exponent - 1) * exponent))
of_exponent = grad * torch.where((self == 0) & (exponent >= 0), 0, result * torch.log(self))
return (of_self, of_exponent)
)"},
      {.name = "aten::pow",
       .overloads = {"Scalar"},
       .opcode = Opcode::kPow,
       .in_place = kPointwise,
       .autocast = kFull,
       .backward = "(None, grad * (result * torch.log(float(self))))",
       .differentiable_if = "float(self) > 0"},
      {.name = "aten::reciprocal",
       .opcode = Opcode::kReciprocal,
       .in_place = kPointwise,
       .autocast = kFull,
       .backward = "(torch.neg(grad) * result * result,)"},
      {.name = "aten::rsqrt",
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .autocast = kFull,
       .body = "torch.reciprocal(torch.sqrt(self))",
       .backward = "(-0.5 * grad * (result * result * result),)"},
      {.name = "aten::sin",
       .opcode = Opcode::kSin,
       .in_place = kPointwise,
       .backward_ignores_result = true,
       .backward = "(grad * torch.cos(self),)"},
      {.name = "aten::sinh", .in_place = kPointwise, .autocast = kFull, .backward = "(grad * torch.cosh(self),)"},
      {.name = "aten::special_entr", .recorded_gradient = true},
      {.name = "aten::special_erfcx", .recorded_gradient = true},
      {.name = "aten::special_expit", .synonym_of = "aten::sigmoid"},
      {.name = "aten::special_i0e", .recorded_gradient = true},
      {.name = "aten::special_i1", .recorded_gradient = true},
      {.name = "aten::special_i1e", .recorded_gradient = true},
      {.name = "aten::special_log_ndtr", .recorded_gradient = true},
      {.name = "aten::special_ndtr",
       .results = kFresh,
       .layout = Layout::kPointwise,
       .forward = "((torch.erf(self * 0.7071067811865476) + 1) * 0.5,)"},
      {.name = "aten::special_ndtri", .recorded_gradient = true},
      {.name = "aten::special_xlog1py", .recorded_gradient = true},
      {.name = "aten::sqrt",
       .opcode = Opcode::kSqrt,
       .raises = Raises::kNotOnNumbers,
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .backward = "(grad / (2 * result),)"},
      {.name = "aten::square",
       .results = kFresh,
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .body = "self * self",
       .backward = "(grad * 2 * self,)"},
      {.name = "aten::tan", .in_place = kPointwise, .autocast = kFull, .backward = "(grad * (1 + result * result),)"},
      {.name = "aten::tanh",
       .opcode = Opcode::kTanh,
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .backward = "(torch.tanh_backward(grad, result),)"},
      {.name = "aten::xlogy", .overloads = {"Tensor"}, .in_place = kPointwise, .backward = R"(
of_self = torch.xlogy(grad, other).masked_fill((self == 0) & (other <= 0), 0)
return (of_self, grad * self / other)
)"},
      {.name = "aten::xlogy", .overloads = {"Scalar_Other", "Scalar_Self"}, .recorded_gradient = true},
  };
  return rows;
}

}  // namespace sconce
