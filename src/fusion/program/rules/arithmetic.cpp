// Sums, products, powers, extrema.
#include "fusion/program/rules/rule.h"

namespace sconce {
namespace {

// a + alpha * b, and with `kSign` -1 a - alpha * b. Sums of bools are disjunctions, and there are no differences of them.
template <int kSign>
Result write_sum(RuleArguments& args) {
  const Type dtype = args.promoted({0, 1});
  const bool has_bool = args.type(0) == at::kBool || args.type(1) == at::kBool;
  if (!dtype || !args.is_value(2) || args.is_tensor(2) || (kSign < 0 && has_bool)) {
    return std::nullopt;
  }
  const Element a = args.rounded(0, *dtype);
  const Element c = args.rounded(1, *dtype);
  if (*dtype == at::kBool) {
    return args.is_one(2) ? Result(args.b.apply(MachineOp::kOr, a, c)) : std::nullopt;
  }
  const c10::ScalarType type_of_alpha = args.type(2);
  if (type_of_alpha == at::kBool || (c10::isFloatingType(type_of_alpha) && !c10::isFloatingType(*dtype))) {
    return std::nullopt;
  }
  if (args.is_one(2)) {
    return args.done(kSign > 0 ? args.add(a, c) : args.sub(a, c), *dtype);
  }
  // LibTorch rounds alpha * b to the dtype in the elements at the end, and not elsewhere.
  if (c10::isReducedFloatingType(*dtype)) {
    return std::nullopt;
  }
  const Element given = args.as(2, *dtype);
  if (!c10::isFloatingType(*dtype)) {
    const Element scaled = args.mul(c, given);
    return kSign > 0 ? args.add(a, scaled) : args.sub(a, scaled);
  }
  const Element alpha = kSign > 0 ? given : args.b.apply(MachineOp::kNeg, given);
  return args.done(args.b.apply(MachineOp::kFma, c, alpha, a), *dtype);
}

// other - alpha * self
Result write_rsub(RuleArguments& args) {
  const ElementArgument swapped[] = {args[1], args[0], args[2]};
  RuleArguments sub(args.b, swapped);
  return write_sum<-1>(sub);
}

Result write_mul(RuleArguments& args) {
  const Type dtype = args.promoted({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  return args.done(
      args.b.apply(*dtype == at::kBool ? MachineOp::kAnd : MachineOp::kMul, args.rounded(0, *dtype), args.as(1, *dtype)),
      *dtype);
}

// `kOfBools` computes bools. Which of two zeros LibTorch returns depends on the place of the element.
template <MachineOp kOp, MachineOp kOfBools>
Result write_extremum(RuleArguments& args) {
  const Type dtype = args.promoted({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  if (c10::isFloatingType(*dtype)) {
    args.b.set_may_differ();
  }
  return args.done(args.b.apply(*dtype == at::kBool ? kOfBools : kOp, args.rounded(0, *dtype), args.rounded(1, *dtype)),
                   *dtype);
}

// mul_(self, other): LibTorch computes other * self, and rounds a number on the left to bfloat16.
Result write_mul_in_place(RuleArguments& args) {
  const Type dtype = args.promoted({0, 1});
  if (!dtype || *dtype != args.type(0)) {
    return std::nullopt;
  }
  return args.done(args.b.apply(*dtype == at::kBool ? MachineOp::kAnd : MachineOp::kMul, args.rounded(0, *dtype),
                                args.rounded(1, *dtype)),
                   *dtype);
}

// addcmul(self, tensor1, tensor2, value)
Result write_addcmul(RuleArguments& args) {
  const Type dtype = args.promoted_floating({0, 1, 2});
  if (!dtype || !args.is_value(3)) {
    return std::nullopt;
  }
  const Element scaled = args.mul(args.as(3, *dtype), args.rounded(1, *dtype));
  return args.done(args.b.apply(MachineOp::kFma, scaled, args.rounded(2, *dtype), args.rounded(0, *dtype)), *dtype);
}

// addcdiv(self, tensor1, tensor2, value): a quotient of integers raises.
Result write_addcdiv(RuleArguments& args) {
  const Type dtype = args.promoted_floating({0, 1, 2});
  const bool divides_integers = !c10::isFloatingType(args.type(1)) && !c10::isFloatingType(args.type(2));
  if (!dtype || !args.is_value(3) || divides_integers) {
    return std::nullopt;
  }
  const Element scaled = args.mul(args.as(3, *dtype), args.rounded(1, *dtype));
  return args.done(args.add(args.rounded(0, *dtype), args.div(scaled, args.rounded(2, *dtype))), *dtype);
}

// lerp(self, end, weight): from the nearer end. LibTorch does not promote.
Result write_lerp(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  if (!c10::isFloatingType(dtype) || args.type(1) != dtype || !args.is_value(2) ||
      (args.is_tensor(2) && args.type(2) != dtype)) {
    return std::nullopt;
  }
  args.b.set_may_differ();  // the sign of zero depends on the place of the element
  const Element self = args.as(0, dtype);
  const Element end = args.as(1, dtype);
  const Element weight = args.as(2, dtype);
  const Element is_small = args.less(args.b.apply(MachineOp::kAbs, weight), args.literal(0.5, weight));
  const Element factor = args.select(is_small, weight, args.sub(weight, args.literal(1, weight)));
  return args.done(args.b.apply(MachineOp::kFma, factor, args.sub(end, self), args.select(is_small, self, end)), dtype);
}

// pow(self, exponent): LibTorch computes these exponents by other operations.
Result write_pow(RuleArguments& args) {
  const auto exponent = args.number(1);
  const c10::ScalarType dtype = args.type(0);
  if (!exponent) {
    return std::nullopt;
  }
  const auto power = [&](Element x) {
    const auto square = [&] { return args.mul(x, x); };
    return *exponent == 0      ? args.literal(1, x)
           : *exponent == 1    ? x
           : *exponent == 2    ? square()
           : *exponent == 3    ? args.mul(square(), x)
           : *exponent == 0.5  ? args.root(x)
           : *exponent == -0.5 ? args.inverse_root(x)
           : *exponent == -1   ? args.inverse(x)
           : *exponent == -2   ? args.inverse(square())
                               : args.b.apply(MachineOp::kPow, x, args.literal(*exponent, x));
  };
  if (c10::isIntegralType(dtype, /*includeBool=*/false) && args[1].constant.isInt() && *exponent >= 0 && *exponent <= 3) {
    return power(args.as(0, dtype));
  }
  if (c10::isReducedFloatingType(dtype) && (*exponent == 3 || *exponent == -2)) {
    args.b.set_may_differ();  // LibTorch rounds the square on some CPUs
  }
  return args.function(power);
}

// pow of a tensor, or of a number, by a tensor
Result write_pow_by_tensor(RuleArguments& args) {
  const Type dtype = args.promoted_floating({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  return args.done(args.b.apply(MachineOp::kPow, args.rounded(0, *dtype), args.rounded(1, *dtype)), *dtype);
}

// float_power(self, exponent): in float64
Result write_float_power(RuleArguments& args) {
  if (!args.is_tensor(0)) {
    return std::nullopt;
  }
  ElementArgument base = args[0];
  base.value = args.as(0, at::kDouble);
  const ElementArgument arguments[] = {base, args[1]};
  RuleArguments power(args.b, arguments);
  return args.is_tensor(1) ? args.b.apply(MachineOp::kPow, base.value, args.as(1, at::kDouble)) : write_pow(power);
}

Result write_square(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  if (dtype == at::kBool) {
    return std::nullopt;
  }
  const Element x = args.as(0, dtype);
  return args.done(args.mul(x, x), dtype);
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
