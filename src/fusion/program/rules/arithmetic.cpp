// Sums, products, powers, extrema.
#include "fusion/program/rules/rule.h"

namespace sconce {
namespace {

// a + alpha * b, and with `kSign` -1 a - alpha * b. Sums of bools are disjunctions, and there are no differences of them.
template <int kSign>
Result write_sum(Writing& w) {
  const Type dtype = w.promoted({0, 1});
  const bool has_bool = w.type(0) == at::kBool || w.type(1) == at::kBool;
  if (!dtype || !w.is_value(2) || w.is_tensor(2) || (kSign < 0 && has_bool)) {
    return std::nullopt;
  }
  const Element a = w.rounded(0, *dtype);
  const Element c = w.rounded(1, *dtype);
  if (*dtype == at::kBool) {
    return w.is_one(2) ? Result(w.b.apply(MachineOp::kOr, a, c)) : std::nullopt;
  }
  const c10::ScalarType type_of_alpha = w.type(2);
  if (type_of_alpha == at::kBool || (c10::isFloatingType(type_of_alpha) && !c10::isFloatingType(*dtype))) {
    return std::nullopt;
  }
  if (w.is_one(2)) {
    return w.done(kSign > 0 ? w.add(a, c) : w.sub(a, c), *dtype);
  }
  // LibTorch rounds alpha * b to the dtype in the elements at the end, and not elsewhere.
  if (c10::isReducedFloatingType(*dtype)) {
    return std::nullopt;
  }
  const Element given = w.as(2, *dtype);
  if (!c10::isFloatingType(*dtype)) {
    const Element scaled = w.mul(c, given);
    return kSign > 0 ? w.add(a, scaled) : w.sub(a, scaled);
  }
  const Element alpha = kSign > 0 ? given : w.b.apply(MachineOp::kNeg, given);
  return w.done(w.b.apply(MachineOp::kFma, c, alpha, a), *dtype);
}

// other - alpha * self
Result write_rsub(Writing& w) {
  const ElementArgument swapped[] = {w[1], w[0], w[2]};
  Writing sub(w.b, swapped);
  return write_sum<-1>(sub);
}

Result write_mul(Writing& w) {
  const Type dtype = w.promoted({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  return w.done(w.b.apply(*dtype == at::kBool ? MachineOp::kAnd : MachineOp::kMul, w.rounded(0, *dtype), w.as(1, *dtype)),
                *dtype);
}

// `kOfBools` computes bools.
template <MachineOp kOp, MachineOp kOfBools>
Result write_extremum(Writing& w) {
  const Type dtype = w.promoted({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  return w.done(w.b.apply(*dtype == at::kBool ? kOfBools : kOp, w.rounded(0, *dtype), w.rounded(1, *dtype)), *dtype);
}

// mul_(self, other): LibTorch computes other * self, and rounds a number on the left to bfloat16.
Result write_mul_in_place(Writing& w) {
  const Type dtype = w.promoted({0, 1});
  if (!dtype || *dtype != w.type(0)) {
    return std::nullopt;
  }
  return w.done(
      w.b.apply(*dtype == at::kBool ? MachineOp::kAnd : MachineOp::kMul, w.rounded(0, *dtype), w.rounded(1, *dtype)),
      *dtype);
}

// addcmul(self, tensor1, tensor2, value)
Result write_addcmul(Writing& w) {
  const Type dtype = w.promoted_floating({0, 1, 2});
  if (!dtype || !w.is_value(3)) {
    return std::nullopt;
  }
  const Element scaled = w.mul(w.as(3, *dtype), w.rounded(1, *dtype));
  return w.done(w.b.apply(MachineOp::kFma, scaled, w.rounded(2, *dtype), w.rounded(0, *dtype)), *dtype);
}

// addcdiv(self, tensor1, tensor2, value): a quotient of integers raises.
Result write_addcdiv(Writing& w) {
  const Type dtype = w.promoted_floating({0, 1, 2});
  const bool divides_integers = !c10::isFloatingType(w.type(1)) && !c10::isFloatingType(w.type(2));
  if (!dtype || !w.is_value(3) || divides_integers) {
    return std::nullopt;
  }
  const Element scaled = w.mul(w.as(3, *dtype), w.rounded(1, *dtype));
  return w.done(w.add(w.rounded(0, *dtype), w.div(scaled, w.rounded(2, *dtype))), *dtype);
}

// lerp(self, end, weight): from the nearer end. LibTorch does not promote.
Result write_lerp(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  if (!c10::isFloatingType(dtype) || w.type(1) != dtype || !w.is_value(2) || (w.is_tensor(2) && w.type(2) != dtype)) {
    return std::nullopt;
  }
  const Element self = w.as(0, dtype);
  const Element end = w.as(1, dtype);
  const Element weight = w.as(2, dtype);
  const Element is_small = w.less(w.b.apply(MachineOp::kAbs, weight), w.literal(0.5, weight));
  const Element factor = w.select(is_small, weight, w.sub(weight, w.literal(1, weight)));
  return w.done(w.b.apply(MachineOp::kFma, factor, w.sub(end, self), w.select(is_small, self, end)), dtype);
}

// pow(self, exponent): LibTorch computes these exponents by other operations.
Result write_pow(Writing& w) {
  const auto exponent = w.number(1);
  const c10::ScalarType dtype = w.type(0);
  if (!exponent) {
    return std::nullopt;
  }
  const auto power = [&](Element x) {
    const auto square = [&] { return w.mul(x, x); };
    return *exponent == 0      ? w.literal(1, x)
           : *exponent == 1    ? x
           : *exponent == 2    ? square()
           : *exponent == 3    ? w.mul(square(), x)
           : *exponent == 0.5  ? w.root(x)
           : *exponent == -0.5 ? w.inverse_root(x)
           : *exponent == -1   ? w.inverse(x)
           : *exponent == -2   ? w.inverse(square())
                               : w.b.apply(MachineOp::kPow, x, w.literal(*exponent, x));
  };
  if (c10::isIntegralType(dtype, /*includeBool=*/false) && w[1].constant.isInt() && *exponent >= 0 && *exponent <= 3) {
    return power(w.as(0, dtype));
  }
  if (c10::isReducedFloatingType(dtype) && (*exponent == 3 || *exponent == -2)) {
    w.b.set_may_round();  // LibTorch rounds the square on some CPUs
  }
  return w.function(power);
}

// pow of a tensor, or of a number, by a tensor
Result write_pow_by_tensor(Writing& w) {
  const Type dtype = w.promoted_floating({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  return w.done(w.b.apply(MachineOp::kPow, w.rounded(0, *dtype), w.rounded(1, *dtype)), *dtype);
}

// float_power(self, exponent): in float64
Result write_float_power(Writing& w) {
  if (!w.is_tensor(0)) {
    return std::nullopt;
  }
  ElementArgument base = w[0];
  base.value = w.as(0, at::kDouble);
  const ElementArgument arguments[] = {base, w[1]};
  Writing power(w.b, arguments);
  return w.is_tensor(1) ? w.b.apply(MachineOp::kPow, base.value, w.as(1, at::kDouble)) : write_pow(power);
}

Result write_square(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  if (dtype == at::kBool) {
    return std::nullopt;
  }
  const Element x = w.as(0, dtype);
  return w.done(w.mul(x, x), dtype);
}

}  // namespace

void add_arithmetic_rules(RuleTable& table) {
  add_rule(table, "add", write_sum<1>, {"Tensor", "Scalar"});
  add_rule(table, "sub", write_sum<-1>, {"Tensor", "Scalar"});
  add_rule(table, "rsub", write_rsub, {"Tensor", "Scalar"});
  add_rule(table, "mul", write_mul, {"Tensor", "Scalar"});
  add_rule(table, "mul_", write_mul_in_place, {"Scalar"});
  add_rule(table, "maximum", write_extremum<MachineOp::kMax, MachineOp::kOr>);
  add_rule(table, "minimum", write_extremum<MachineOp::kMin, MachineOp::kAnd>);
  add_rule(table, "max", write_extremum<MachineOp::kMax, MachineOp::kOr>, {"other"});
  add_rule(table, "min", write_extremum<MachineOp::kMin, MachineOp::kAnd>, {"other"});
  add_rule(table, "clamp_min", write_extremum<MachineOp::kMax, MachineOp::kOr>, {"Tensor"});
  add_rule(table, "clamp_max", write_extremum<MachineOp::kMin, MachineOp::kAnd>, {"Tensor"});
  add_rule(table, "addcmul", write_addcmul);
  add_rule(table, "addcdiv", write_addcdiv);
  add_rule(table, "lerp", write_lerp, {"Scalar", "Tensor"});
  add_rule(table, "pow", write_pow, {"Tensor_Scalar"});
  add_rule(table, "pow", write_pow_by_tensor, {"Tensor_Tensor", "Scalar"});
  add_rule(table, "float_power", write_float_power, {"Tensor_Tensor", "Tensor_Scalar"});
  add_rule(table, "square", write_square);
}

}  // namespace sconce
