// Element by element: arithmetic, comparisons, selection, and their synonyms.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> pointwise_rows() {
  using enum Autocast;
  using enum ResultDtype;
  using enum Sharing;
  using enum VariantMatch;
  static const std::vector<OpRow> rows = {
      {.name = "aten::abs",
       .opcode = Opcode::kAbs,
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .backward_ignores_result = true,
       .result = {.dtypes = {kReal}, .keeps_sizes = true},
       .backward = "(grad * torch.sign(self),)"},
      {.name = "aten::absolute", .synonym_of = "aten::abs"},
      {.name = "aten::absolute_", .synonym_of = "aten::abs_"},
      {.name = "aten::add",
       .opcode = Opcode::kAdd,
       .raises = Raises::kNotOnNumbers,
       .makes_container = true,
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .backward_ignores_result = true,
       .autocast = kWidest,
       .result = {.dtypes = {kPromoted}},
       .backward = "(grad, scaled(grad, alpha))"},
      {.name = "aten::addcdiv", .in_place = kPointwise, .autocast = kWidest, .backward = R"(
return (grad, scaled(grad / tensor2, value), torch.neg(scaled(grad * (tensor1 / (tensor2 * tensor2)), value)))
)"},
      {.name = "aten::addcmul",
       .in_place = kPointwise,
       .autocast = kWidest,
       .body = "self + (tensor1 * tensor2) * value",
       .backward = "(grad, scaled(grad * tensor2, value), scaled(grad * tensor1, value))"},
      {.name = "aten::__and__", .opcode = Opcode::kAnd, .raises = Raises::kNotOnNumbers},
      {.name = "aten::ceil", .opcode = Opcode::kCeil, .in_place = kPointwise, .backward = "(torch.zeros_like(grad),)"},
      {.name = "aten::clamp", .layout = Layout::kPointwise, .in_place = kPointwise, .backward = R"(
of_self = grad
if min is not None:
    of_self = torch.where(self >= min, of_self, 0)
if max is not None:
    of_self = torch.where(self <= max, of_self, 0)
return (of_self,)
)"},
      {.name = "aten::clamp", .overloads = {"Tensor"}, .layout = Layout::kPointwise, .in_place = kPointwise, .backward = R"(
of_self = grad
of_min = grad
of_max = grad
if min is not None:
    of_self = torch.where(self >= min, of_self, 0)
    of_min = torch.where(self < min, grad, 0)
if max is not None:
    of_self = torch.where(self <= max, of_self, 0)
    of_max = torch.where(self > max, grad, 0)
if min is not None and max is not None:
    of_min = torch.where(min < max, of_min, 0)
    of_max = torch.where(max < min, grad, of_max)
return (of_self, of_min, of_max)
)"},
      {.name = "aten::clamp_max",
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .body = "torch.where((self <= max) | (self != self), self, max)",
       .backward = "(torch.where(self <= max, grad, 0),)"},
      {.name = "aten::clamp_max",
       .overloads = {"Tensor"},
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .body = "torch.minimum(self, max)",
       .backward = "(torch.where(self <= max, grad, 0), torch.where(self > max, grad, 0))"},
      {.name = "aten::clamp_min",
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .body = "torch.where((self >= min) | (self != self), self, min)",
       .backward = "(torch.where(self >= min, grad, 0),)"},
      {.name = "aten::clamp_min",
       .overloads = {"Tensor"},
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .body = "torch.maximum(self, min)",
       .backward = "(torch.where(self >= min, grad, 0), torch.where(self < min, grad, 0))"},
      {.name = "aten::clip", .synonym_of = "aten::clamp"},
      {.name = "aten::clip_", .synonym_of = "aten::clamp_"},
      {.name = "aten::copy_", .overwrites = true},
      {.name = "aten::copysign", .recorded_gradient = true},
      {.name = "aten::deg2rad", .in_place = kPointwise, .recorded_gradient = true},
      {.name = "aten::div",
       .opcode = Opcode::kDiv,
       .raises = Raises::kNotOnNumbers,
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .backward_ignores_result = true,
       .autocast = kWidest,
       .backward = "(grad / other, torch.neg(grad) * ((self / other) / other))"},
      {.name = "aten::div",
       .overloads = {"Scalar_mode", "Tensor_mode"},
       .opcode = Opcode::kDiv,
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .backward_ignores_result = true,
       .autocast = kWidest,
       .backward = R"(
if rounding_mode is None:
    of_self = grad / other
    of_other = torch.neg(grad) * ((self / other) / other)
else:
    of_self = torch.zeros_like(grad)
    of_other = torch.zeros_like(grad)
return (of_self, of_other)
)"},
      {.name = "aten::divide", .synonym_of = "aten::div", .results = kFresh},
      {.name = "aten::divide_", .synonym_of = "aten::div_"},
      {.name = "aten::eq", .opcode = Opcode::kEqual, .raises = Raises::kNotOnNumbers},
      {.name = "aten::fill", .in_place = kAlways},
      {.name = "aten::fill_", .overwrites = true},
      {.name = "aten::fix", .synonym_of = "aten::trunc"},
      {.name = "aten::fix_", .synonym_of = "aten::trunc_"},
      {.name = "aten::floor", .opcode = Opcode::kFloor, .in_place = kPointwise, .backward = "(torch.zeros_like(grad),)"},
      {.name = "aten::floor_divide", .result = {.dtypes = {kPromoted}}},
      {.name = "aten::fmax", .backward = R"(
left = (self >= other) | torch.isnan(other)
return (torch.where(left, grad, 0), torch.where(left, 0, grad))
)"},
      {.name = "aten::fmin", .backward = R"(
left = (self <= other) | torch.isnan(other)
return (torch.where(left, grad, 0), torch.where(left, 0, grad))
)"},
      {.name = "aten::fmod",
       .in_place = kPointwise,
       .backward = "(grad, torch.neg(grad) * torch.div(self, other, rounding_mode=\"trunc\"))"},
      {.name = "aten::frac", .in_place = kPointwise, .backward = "(grad,)"},
      {.name = "aten::ge", .opcode = Opcode::kGreaterEqual, .raises = Raises::kNotOnNumbers},
      {.name = "aten::greater", .synonym_of = "aten::gt", .results = kFresh},
      {.name = "aten::greater_", .synonym_of = "aten::gt_"},
      {.name = "aten::greater_equal", .synonym_of = "aten::ge"},
      {.name = "aten::greater_equal_", .synonym_of = "aten::ge_"},
      {.name = "aten::gt", .opcode = Opcode::kGreater, .raises = Raises::kNotOnNumbers},
      {.name = "aten::isfinite", .results = kFresh, .result = {.dtypes = {kBool}, .keeps_sizes = true}},
      {.name = "aten::isinf", .result = {.dtypes = {kBool}, .keeps_sizes = true}},
      {.name = "aten::isnan", .result = {.dtypes = {kBool}, .keeps_sizes = true}},
      {.name = "aten::i0", .in_place = kPointwise, .recorded_gradient = true},
      {.name = "aten::le", .opcode = Opcode::kLessEqual, .raises = Raises::kNotOnNumbers},
      {.name = "aten::lerp",
       .in_place = kPointwise,
       .backward = "(grad * (1 - weight), grad * weight, grad * (end - self))"},
      {.name = "aten::less", .synonym_of = "aten::lt", .results = kFresh},
      {.name = "aten::less_", .synonym_of = "aten::lt_"},
      {.name = "aten::less_equal", .synonym_of = "aten::le"},
      {.name = "aten::less_equal_", .synonym_of = "aten::le_"},
      {.name = "aten::logical_and", .result = {.dtypes = {kBool}}},
      {.name = "aten::logical_not", .opcode = Opcode::kLogicalNot, .result = {.dtypes = {kBool}}},
      {.name = "aten::float_power", .results = kFresh},
      {.name = "aten::ldexp", .overloads = {"Tensor"}, .results = kFresh},
      {.name = "aten::__lshift__", .result = {.dtypes = {kPromoted}}},
      {.name = "aten::lt", .opcode = Opcode::kLess, .raises = Raises::kNotOnNumbers},
      {.name = "aten::masked_fill",
       .in_place = kContiguous,
       .backward_ignores_result = true,
       .result = {.dtypes = {kFirst}},
       .body = "torch.where(mask, value, self).type_as(self)",
       .backward = "(torch.where(mask, 0, grad), None, torch.where(mask, grad, 0))"},
      {.name = "aten::maximum", .opcode = Opcode::kMaximum, .layout = Layout::kPointwise, .backward = R"(
half = torch.where(self == other, grad / 2, grad)
return (torch.where(self < other, 0, half), torch.where(other < self, 0, half))
)"},
      {.name = "aten::minimum", .opcode = Opcode::kMinimum, .layout = Layout::kPointwise, .backward = R"(
half = torch.where(self == other, grad / 2, grad)
return (torch.where(self > other, 0, half), torch.where(other > self, 0, half))
)"},
      {.name = "aten::mul",
       .opcode = Opcode::kMul,
       .raises = Raises::kNotOnNumbers,
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .backward_ignores_result = true,
       .autocast = kWidest,
       .result = {.dtypes = {kPromoted}},
       .grows_by_number = true,
       .backward = "(grad * other, grad * self)"},
      {.name = "aten::multiply", .synonym_of = "aten::mul", .results = kFresh},
      {.name = "aten::multiply_", .synonym_of = "aten::mul_"},
      {.name = "aten::nan_to_num",
       .in_place = kPointwise,
       .result = {.dtypes = {kFirst}},
       .backward = "(grad * torch.isfinite(self),)"},
      {.name = "aten::ne", .opcode = Opcode::kNotEqual, .raises = Raises::kNotOnNumbers},
      {.name = "aten::neg",
       .opcode = Opcode::kNeg,
       .raises = Raises::kNotOnNumbers,
       .layout = Layout::kPointwise,
       .in_place = kAlways,
       .backward_ignores_result = true,
       .backward = "(torch.neg(grad),)"},
      {.name = "aten::negative", .synonym_of = "aten::neg"},
      {.name = "aten::negative_", .synonym_of = "aten::neg_"},
      {.name = "aten::not_equal", .synonym_of = "aten::ne"},
      {.name = "aten::not_equal_", .synonym_of = "aten::ne_"},
      {.name = "aten::__or__", .opcode = Opcode::kOr, .raises = Raises::kNotOnNumbers},
      {.name = "aten::rad2deg", .in_place = kPointwise, .recorded_gradient = true},
      {.name = "aten::remainder",
       .opcode = Opcode::kRemainder,
       .in_place = kPointwise,
       .division = IntegerDivision{.traps_on_zero = true}},
      {.name = "aten::remainder",
       .overloads = {"Scalar", "Tensor"},
       .opcode = Opcode::kRemainder,
       .in_place = kPointwise,
       .division = IntegerDivision{.traps_on_zero = true},
       .backward = "(grad, torch.neg(grad) * torch.div(self, other, rounding_mode=\"floor\"))"},
      {.name = "aten::round", .opcode = Opcode::kRound, .in_place = kPointwise, .backward = "(torch.zeros_like(grad),)"},
      {.name = "aten::__rshift__", .result = {.dtypes = {kPromoted}}},
      {.name = "aten::rsub",
       .backward_ignores_result = true,
       .body = "other - self * alpha",
       .backward = "(torch.neg(scaled(grad, alpha)), grad)"},
      {.name = "aten::sgn", .in_place = kPointwise, .recorded_gradient = true},
      {.name = "aten::sign", .in_place = kPointwise, .backward = "(torch.zeros_like(grad),)"},
      {.name = "aten::sub",
       .opcode = Opcode::kSub,
       .raises = Raises::kNotOnNumbers,
       .layout = Layout::kPointwise,
       .in_place = kPointwise,
       .backward_ignores_result = true,
       .autocast = kWidest,
       .result = {.dtypes = {kPromoted}},
       .backward = "(grad, torch.neg(scaled(grad, alpha)))"},
      {.name = "aten::subtract", .synonym_of = "aten::sub", .results = kFresh},
      {.name = "aten::subtract_", .synonym_of = "aten::sub_"},
      {.name = "aten::true_divide", .synonym_of = "aten::div", .results = kFresh},
      {.name = "aten::true_divide_", .synonym_of = "aten::div_"},
      {.name = "aten::trunc", .opcode = Opcode::kTrunc, .in_place = kPointwise, .backward = "(torch.zeros_like(grad),)"},
      {.name = "aten::where", .opcode = Opcode::kWhere, .backward_ignores_result = true, .result = {.runs_on_empty = true}},
      {.name = "aten::where",
       .overloads = {"Scalar", "ScalarSelf", "ScalarOther"},
       .opcode = Opcode::kWhere,
       .results = kFresh,
       .backward_ignores_result = true,
       .result = {.dtypes = {kPromoted}},
       .backward = "(None, torch.where(condition, grad, 0), torch.where(condition, 0, grad))"},
      {.name = "aten::where",
       .overloads = {"self"},
       .opcode = Opcode::kWhere,
       .backward_ignores_result = true,
       .result = {.dtypes = {kPromoted}},
       .backward = "(None, torch.where(condition, grad, 0), torch.where(condition, 0, grad))"},
      {.name = "aten::sinc", .in_place = kPointwise, .recorded_gradient = true},
      {.name = "aten::__xor__", .overloads = {"Tensor", "Scalar"}, .synonym_of = "aten::bitwise_xor"},
      {.name = "aten::zero", .in_place = kAlways},
      {.name = "aten::zero_", .overwrites = true},
  };
  return rows;
}

}  // namespace sconce
