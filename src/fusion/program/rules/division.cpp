// Quotients and remainders. Those of integers by what may be 0 are left to LibTorch, which raises.
#include "fusion/program/rules/rule.h"

#include <cmath>

namespace sconce {
namespace {

Element size_of(RuleArguments& args, Element x) { return args.b.apply(MachineOp::kAbs, x); }

Element infinity(RuleArguments& args, Element like) { return args.literal(std::numeric_limits<double>::infinity(), like); }

Element copysign(RuleArguments& args, Element size, Element sign) { return args.b.apply(MachineOp::kCopysign, size, sign); }

// Returns whether a remainder `rest` of a division by `divisor` has the other sign.
Element has_other_sign(RuleArguments& args, Element rest, Element divisor) {
  const Element zero = args.literal(0, rest);
  const Element differs = args.b.apply(MachineOp::kXor, args.less(divisor, zero), args.less(rest, zero));
  return args.b.apply(MachineOp::kAnd, args.different(rest, zero), differs);
}

// Returns the quotient rounded down as Python computes it, from the exact remainder.
Element floor_of_quotient(RuleArguments& args, Element a, Element c) {
  const Element zero = args.literal(0, a);
  const Element one = args.literal(1, a);
  const Element quotient = args.div(a, c);
  const Element rest = args.b.apply(MachineOp::kFmod, a, c);
  const Element whole = args.div(args.sub(a, rest), c);
  const Element below = args.select(has_other_sign(args, rest, c), args.sub(whole, one), whole);
  const Element floor = args.b.apply(MachineOp::kFloor, below);
  const Element is_above = args.less(args.literal(0.5, a), args.sub(below, floor));
  const Element nearest = args.select(is_above, args.add(floor, one), floor);
  const Element result = args.select(args.different(below, zero), nearest, copysign(args, zero, quotient));
  const Element overflows = args.b.apply(MachineOp::kAnd, args.equal(size_of(args, quotient), infinity(args, quotient)),
                                         args.less(size_of(args, a), infinity(args, a)));
  return args.select(args.b.apply(MachineOp::kOr, args.equal(c, zero), overflows), quotient, result);
}

// Returns whether integers of the dtype are divided by a constant for which no quotient raises or overflows.
bool divides_integers(const RuleArguments& args, c10::ScalarType dtype) {
  const double divisor = args.number(1).value_or(0);
  const double largest = dtype == at::kByte ? UINT8_MAX : dtype == at::kInt ? INT32_MAX : 0x1p53;
  return c10::isIntegralType(dtype, /*includeBool=*/false) && args.is_tensor(0) && args.is_number(1) && divisor != 0 &&
         divisor != -1 && std::abs(divisor) <= largest && (dtype != at::kByte || divisor > 0);
}

// Returns the quotient of integers, rounded down.
Element floor_of_integers(RuleArguments& args, Element a, Element c) {
  const Element quotient = args.div(a, c);
  if (a.type == at::kByte) {
    return quotient;
  }
  const Element rest = args.b.apply(MachineOp::kRemainder, a, c);
  return args.select(has_other_sign(args, rest, c), args.sub(quotient, args.literal(1, a)), quotient);
}

// div(self, other) and div(self, other, rounding_mode)
Result write_div(RuleArguments& args) {
  const bool is_rounded = args.size() == 3 && !args.is_none(2);
  const Type dtype = is_rounded ? args.promoted({0, 1}) : args.promoted_to_floating({0, 1});
  const auto mode = is_rounded ? args.word(2, {"trunc", "floor"}) : std::nullopt;
  if (!dtype || (is_rounded && !mode)) {
    return std::nullopt;
  }
  const bool is_floor = mode == 1;
  if (!c10::isFloatingType(*dtype)) {
    if (!divides_integers(args, *dtype)) {
      return std::nullopt;
    }
    const Element a = args.as(0, *dtype);
    const Element c = args.as(1, *dtype);
    return is_floor ? floor_of_integers(args, a, c) : args.div(a, c);
  }
  // Only a divisor without dimensions keeps its precision.
  const Element a = args.rounded(0, *dtype);
  const Element c = args.as(1, *dtype);
  if (!is_rounded) {
    return args.done(args.div(a, c), *dtype);
  }
  if (c10::isReducedFloatingType(*dtype)) {
    return std::nullopt;
  }
  args.b.set_may_differ();  // LibTorch's quotients in vectors have NaN where they overflow
  return is_floor ? floor_of_quotient(args, a, c) : args.b.apply(MachineOp::kTrunc, args.div(a, c));
}

Result write_floor_divide(RuleArguments& args) {
  const Type dtype = args.promoted({0, 1});
  if (dtype && divides_integers(args, *dtype)) {
    return floor_of_integers(args, args.as(0, *dtype), args.as(1, *dtype));
  }
  return dtype && c10::isFloatingType(*dtype) && !c10::isReducedFloatingType(*dtype)
             ? Result(floor_of_quotient(args, args.as(0, *dtype), args.as(1, *dtype)))
             : std::nullopt;
}

// The remainder with the sign of the dividend.
Result write_fmod(RuleArguments& args) {
  const Type dtype = args.promoted({0, 1});
  if (dtype && divides_integers(args, *dtype)) {
    return args.b.apply(MachineOp::kRemainder, args.as(0, *dtype), args.as(1, *dtype));
  }
  return dtype && c10::isFloatingType(*dtype)
             ? Result(args.done(args.b.apply(MachineOp::kFmod, args.rounded(0, *dtype), args.rounded(1, *dtype)), *dtype))
             : std::nullopt;
}

// The remainder with the sign of the divisor.
Result write_remainder(RuleArguments& args) {
  const Type dtype = args.promoted({0, 1});
  if (!dtype || (!c10::isFloatingType(*dtype) && !divides_integers(args, *dtype))) {
    return std::nullopt;
  }
  if (!c10::isFloatingType(*dtype)) {
    const Element c = args.as(1, *dtype);
    const Element rest_of_integers = args.b.apply(MachineOp::kRemainder, args.as(0, *dtype), c);
    return *dtype == at::kByte
               ? rest_of_integers
               : args.select(has_other_sign(args, rest_of_integers, c), args.add(rest_of_integers, c), rest_of_integers);
  }
  const Element divisor = args.rounded(1, *dtype);
  const Element rest = args.b.apply(MachineOp::kFmod, args.rounded(0, *dtype), divisor);
  return args.done(args.select(has_other_sign(args, rest, divisor), args.add(rest, divisor), rest), *dtype);
}

Result write_copysign(RuleArguments& args) {
  const Type dtype = args.promoted_floating({0, 1});
  return dtype ? Result(args.done(copysign(args, args.rounded(0, *dtype), args.rounded(1, *dtype)), *dtype)) : std::nullopt;
}

Result write_signbit(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  if (dtype == at::kBool || dtype == at::kByte) {
    return std::nullopt;
  }
  const Element x = args.as(0, dtype);
  return c10::isFloatingType(dtype) ? args.less(copysign(args, args.literal(1, x), x), args.literal(0, x))
                                    : args.less(x, args.literal(0, x));
}

// Whether an infinity of this sign.
template <bool kIsPositive>
Result write_one_infinity(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  if (!c10::isFloatingType(dtype)) {
    return args.b.integer(0, at::kBool);
  }
  const Element x = args.as(0, dtype);
  return args.equal(x, args.literal(std::numeric_limits<double>::infinity() * (kIsPositive ? 1 : -1), x));
}

Result write_isnan(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  if (!c10::isFloatingType(dtype)) {
    return args.b.integer(0, at::kBool);
  }
  const Element x = args.as(0, dtype);
  return args.different(x, x);
}

template <bool kIsInfinite>
Result write_infinite(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  if (!c10::isFloatingType(dtype)) {
    return args.b.integer(kIsInfinite ? 0 : 1, at::kBool);
  }
  const Element x = args.as(0, dtype);
  return kIsInfinite ? args.equal(size_of(args, x), infinity(args, x)) : args.less(size_of(args, x), infinity(args, x));
}

}  // namespace

void add_division_rules(RuleTable& table) {
  add_rule(table, "div", write_div, {"Tensor", "Scalar", "Tensor_mode", "Scalar_mode"});
  add_rule(table, "true_divide", write_div, {"Tensor", "Scalar"});
  add_rule(table, "floor_divide", write_floor_divide, {"", "Scalar"});
  add_rule(table, "fmod", write_fmod, {"Tensor", "Scalar"});
  add_rule(table, "remainder", write_remainder, {"Tensor", "Scalar", "Scalar_Tensor"});
  add_rule(table, "copysign", write_copysign, {"Tensor", "Scalar"});
  add_rule(table, "signbit", write_signbit);
  add_rule(table, "isposinf", write_one_infinity<true>);
  add_rule(table, "isneginf", write_one_infinity<false>);
  add_rule(table, "isnan", write_isnan);
  add_rule(table, "isinf", write_infinite<true>);
  add_rule(table, "isfinite", write_infinite<false>);
}

}  // namespace sconce
