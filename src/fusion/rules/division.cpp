// Quotients and remainders. Those of integers are left to LibTorch: division has the default dtype, and zero raises.
#include "fusion/rules/rule.h"

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
  const Element is_infinite = w.equal(size_of(w, quotient), infinity(w, quotient));
  return w.select(w.b.apply(MachineOp::kOr, w.equal(c, zero), is_infinite), quotient, result);
}

// div(self, other) and div(self, other, rounding_mode)
Result write_div(Writing& w) {
  const Type dtype = w.promoted_floating({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  // Only a divisor without dimensions keeps its precision.
  const Element a = w.rounded(0, *dtype);
  const Element c = w.as(1, *dtype);
  if (w.size() == 2 || w.is_none(2)) {
    return w.done(w.div(a, c), *dtype);
  }
  if (!w[2].constant.isString() || *dtype == at::kBFloat16) {
    return std::nullopt;
  }
  const std::string& mode = w[2].constant.toStringRef();
  return mode == "trunc"   ? Result(w.b.apply(MachineOp::kTrunc, w.div(a, c)))
         : mode == "floor" ? Result(floor_of_quotient(w, a, c))
                           : std::nullopt;
}

Result write_floor_divide(Writing& w) {
  const Type dtype = w.promoted_floating({0, 1});
  return dtype && *dtype != at::kBFloat16 ? Result(floor_of_quotient(w, w.as(0, *dtype), w.as(1, *dtype))) : std::nullopt;
}

// The remainder with the sign of the dividend.
Result write_fmod(Writing& w) {
  const Type dtype = w.promoted_floating({0, 1});
  return dtype ? Result(w.done(w.b.apply(MachineOp::kFmod, w.rounded(0, *dtype), w.rounded(1, *dtype)), *dtype))
               : std::nullopt;
}

// The remainder with the sign of the divisor.
Result write_remainder(Writing& w) {
  const Type dtype = w.promoted_floating({0, 1});
  if (!dtype) {
    return std::nullopt;
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
  add_rule(table, "floor_divide", write_floor_divide, {"", "Scalar"});
  add_rule(table, "fmod", write_fmod, {"Tensor", "Scalar"});
  add_rule(table, "remainder", write_remainder, {"Tensor", "Scalar", "Scalar_Tensor"});
  add_rule(table, "copysign", write_copysign, {"Tensor", "Scalar"});
  add_rule(table, "signbit", write_signbit);
  add_rule(table, "isnan", write_isnan);
  add_rule(table, "isinf", write_infinite<true>);
  add_rule(table, "isfinite", write_infinite<false>);
}

}  // namespace sconce
