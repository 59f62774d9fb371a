// Quotients and remainders. Those of integers by what may be 0 are left to LibTorch, which raises.
#include "fusion/program/rules/rule.h"

#include <cmath>

namespace sconce {
namespace {

Element size_of(Writing& w, Element x) { return w.b.apply(MachineOp::kAbs, x); }

Element infinity(Writing& w, Element like) { return w.literal(std::numeric_limits<double>::infinity(), like); }

Element copysign(Writing& w, Element size, Element sign) { return w.b.apply(MachineOp::kCopysign, size, sign); }

// Returns whether a remainder `rest` of a division by `divisor` has the other sign.
Element has_other_sign(Writing& w, Element rest, Element divisor) {
  const Element zero = w.literal(0, rest);
  const Element differs = w.b.apply(MachineOp::kXor, w.less(divisor, zero), w.less(rest, zero));
  return w.b.apply(MachineOp::kAnd, w.different(rest, zero), differs);
}

// Returns the quotient rounded down as Python computes it, from the exact remainder.
Element floor_of_quotient(Writing& w, Element a, Element c) {
  const Element zero = w.literal(0, a);
  const Element one = w.literal(1, a);
  const Element quotient = w.div(a, c);
  const Element rest = w.b.apply(MachineOp::kFmod, a, c);
  const Element whole = w.div(w.sub(a, rest), c);
  const Element below = w.select(has_other_sign(w, rest, c), w.sub(whole, one), whole);
  const Element floor = w.b.apply(MachineOp::kFloor, below);
  const Element is_above = w.less(w.literal(0.5, a), w.sub(below, floor));
  const Element nearest = w.select(is_above, w.add(floor, one), floor);
  const Element result = w.select(w.different(below, zero), nearest, copysign(w, zero, quotient));
  const Element overflows = w.b.apply(MachineOp::kAnd, w.equal(size_of(w, quotient), infinity(w, quotient)),
                                      w.less(size_of(w, a), infinity(w, a)));
  return w.select(w.b.apply(MachineOp::kOr, w.equal(c, zero), overflows), quotient, result);
}

// Returns whether integers of the dtype are divided by a constant for which no quotient raises or overflows.
bool divides_integers(const Writing& w, c10::ScalarType dtype) {
  const double divisor = w.number(1).value_or(0);
  const double largest = dtype == at::kByte ? UINT8_MAX : dtype == at::kInt ? INT32_MAX : 0x1p53;
  return c10::isIntegralType(dtype, /*includeBool=*/false) && w.is_tensor(0) && w.is_number(1) && divisor != 0 &&
         divisor != -1 && std::abs(divisor) <= largest && (dtype != at::kByte || divisor > 0);
}

// Returns the quotient of integers, rounded down.
Element floor_of_integers(Writing& w, Element a, Element c) {
  const Element quotient = w.div(a, c);
  if (a.type == at::kByte) {
    return quotient;
  }
  const Element rest = w.b.apply(MachineOp::kRemainder, a, c);
  return w.select(has_other_sign(w, rest, c), w.sub(quotient, w.literal(1, a)), quotient);
}

// div(self, other) and div(self, other, rounding_mode)
Result write_div(Writing& w) {
  const bool is_rounded = w.size() == 3 && !w.is_none(2);
  const Type dtype = is_rounded ? w.promoted({0, 1}) : w.promoted_to_floating({0, 1});
  const auto mode = is_rounded ? w.word(2, {"trunc", "floor"}) : std::nullopt;
  if (!dtype || (is_rounded && !mode)) {
    return std::nullopt;
  }
  const bool is_floor = mode == 1;
  if (!c10::isFloatingType(*dtype)) {
    if (!divides_integers(w, *dtype)) {
      return std::nullopt;
    }
    const Element a = w.as(0, *dtype);
    const Element c = w.as(1, *dtype);
    return is_floor ? floor_of_integers(w, a, c) : w.div(a, c);
  }
  // Only a divisor without dimensions keeps its precision.
  const Element a = w.rounded(0, *dtype);
  const Element c = w.as(1, *dtype);
  if (!is_rounded) {
    return w.done(w.div(a, c), *dtype);
  }
  if (c10::isReducedFloatingType(*dtype)) {
    return std::nullopt;
  }
  w.b.set_may_round();  // LibTorch's quotients in vectors have NaN where they overflow
  return is_floor ? floor_of_quotient(w, a, c) : w.b.apply(MachineOp::kTrunc, w.div(a, c));
}

Result write_floor_divide(Writing& w) {
  const Type dtype = w.promoted({0, 1});
  if (dtype && divides_integers(w, *dtype)) {
    return floor_of_integers(w, w.as(0, *dtype), w.as(1, *dtype));
  }
  return dtype && c10::isFloatingType(*dtype) && !c10::isReducedFloatingType(*dtype)
             ? Result(floor_of_quotient(w, w.as(0, *dtype), w.as(1, *dtype)))
             : std::nullopt;
}

// The remainder with the sign of the dividend.
Result write_fmod(Writing& w) {
  const Type dtype = w.promoted({0, 1});
  if (dtype && divides_integers(w, *dtype)) {
    return w.b.apply(MachineOp::kRemainder, w.as(0, *dtype), w.as(1, *dtype));
  }
  return dtype && c10::isFloatingType(*dtype)
             ? Result(w.done(w.b.apply(MachineOp::kFmod, w.rounded(0, *dtype), w.rounded(1, *dtype)), *dtype))
             : std::nullopt;
}

// The remainder with the sign of the divisor.
Result write_remainder(Writing& w) {
  const Type dtype = w.promoted({0, 1});
  if (!dtype || (!c10::isFloatingType(*dtype) && !divides_integers(w, *dtype))) {
    return std::nullopt;
  }
  if (!c10::isFloatingType(*dtype)) {
    const Element c = w.as(1, *dtype);
    const Element rest_of_integers = w.b.apply(MachineOp::kRemainder, w.as(0, *dtype), c);
    return *dtype == at::kByte
               ? rest_of_integers
               : w.select(has_other_sign(w, rest_of_integers, c), w.add(rest_of_integers, c), rest_of_integers);
  }
  const Element divisor = w.rounded(1, *dtype);
  const Element rest = w.b.apply(MachineOp::kFmod, w.rounded(0, *dtype), divisor);
  return w.done(w.select(has_other_sign(w, rest, divisor), w.add(rest, divisor), rest), *dtype);
}

Result write_copysign(Writing& w) {
  const Type dtype = w.promoted_floating({0, 1});
  return dtype ? Result(w.done(copysign(w, w.rounded(0, *dtype), w.rounded(1, *dtype)), *dtype)) : std::nullopt;
}

Result write_signbit(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  if (dtype == at::kBool || dtype == at::kByte) {
    return std::nullopt;
  }
  const Element x = w.as(0, dtype);
  return c10::isFloatingType(dtype) ? w.less(copysign(w, w.literal(1, x), x), w.literal(0, x)) : w.less(x, w.literal(0, x));
}

// Whether an infinity of this sign.
template <bool kIsPositive>
Result write_one_infinity(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  if (!c10::isFloatingType(dtype)) {
    return w.b.integer(0, at::kBool);
  }
  const Element x = w.as(0, dtype);
  return w.equal(x, w.literal(std::numeric_limits<double>::infinity() * (kIsPositive ? 1 : -1), x));
}

Result write_isnan(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  if (!c10::isFloatingType(dtype)) {
    return w.b.integer(0, at::kBool);
  }
  const Element x = w.as(0, dtype);
  return w.different(x, x);
}

template <bool kIsInfinite>
Result write_infinite(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  if (!c10::isFloatingType(dtype)) {
    return w.b.integer(kIsInfinite ? 0 : 1, at::kBool);
  }
  const Element x = w.as(0, dtype);
  return kIsInfinite ? w.equal(size_of(w, x), infinity(w, x)) : w.less(size_of(w, x), infinity(w, x));
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
