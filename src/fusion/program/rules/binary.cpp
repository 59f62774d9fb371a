// Shifts, and other functions of two operands.
#include "fusion/program/rules/rule.h"

#include <numbers>

namespace sconce {
namespace {

// Shifts by less than 0 or by all bits give 0; to the right, copies of the sign.
template <MachineOp kOp>
Result write_shift(Writing& w) {
  const Type dtype = w.promoted({0, 1});
  if (!dtype || !c10::isIntegralType(*dtype, /*includeBool=*/false)) {
    return std::nullopt;
  }
  const bool is_unsigned = *dtype == at::kByte;
  const auto bits = static_cast<int64_t>(c10::elementSize(*dtype) * 8);
  const Element x = w.as(0, *dtype);
  const Element by = w.as(1, *dtype);
  const int64_t most = kOp == MachineOp::kShiftLeft || is_unsigned ? bits - 1 : bits - 2;
  const Element last = w.b.integer(most, *dtype);
  const Element is_within = w.b.apply(MachineOp::kAnd, w.b.apply(MachineOp::kGreaterEqual, by, w.literal(0, by)),
                                      w.b.apply(MachineOp::kLessEqual, by, last));
  const Element shifted = w.b.apply(kOp, x, w.select(is_within, by, w.literal(0, by)));
  const Element beyond =
      kOp == MachineOp::kShiftLeft || is_unsigned ? w.literal(0, x) : w.b.apply(kOp, x, w.b.integer(bits - 1, *dtype));
  return w.select(is_within, shifted, beyond);
}

// The larger or smaller operand; a number rather than NaN.
template <MachineOp kOp>
Result write_extremum_of_numbers(Writing& w) {
  const Type dtype = w.promoted({0, 1});
  if (!dtype || *dtype == at::kBool) {
    return std::nullopt;
  }
  const Element a = w.rounded(0, *dtype);
  const Element c = w.rounded(1, *dtype);
  const Element extremum = w.b.apply(kOp, a, c);
  if (!c10::isFloatingType(*dtype)) {
    return extremum;
  }
  return w.done(w.select(w.different(a, a), c, w.select(w.different(c, c), a, extremum)), *dtype);
}

// heaviside(self, values): `values` where self is 0
Result write_heaviside(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  if (w.type(1) != dtype || dtype == at::kBool) {
    return std::nullopt;
  }
  const Element x = w.as(0, dtype);
  const Element zero = w.literal(0, x);
  const Element step = w.select(w.less(zero, x), w.literal(1, x), zero);
  return w.done(w.select(w.equal(x, zero), w.as(1, dtype), step), dtype);
}

// logaddexp(self, other), to the base e or 2
template <MachineOp kExp, bool kToBase2>
Result write_log_of_sum(Writing& w) {
  const Type dtype = w.promoted_floating({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  const Element a = w.rounded(0, *dtype);
  const Element c = w.rounded(1, *dtype);
  const Element distance = w.b.apply(MachineOp::kAbs, w.sub(a, c));
  const Element rest = w.b.apply(MachineOp::kLog1p, w.b.apply(kExp, w.b.apply(MachineOp::kNeg, distance)));
  const Element largest = w.b.apply(MachineOp::kMax, a, c);
  const Element sum =
      kToBase2 ? w.b.apply(MachineOp::kFma, rest, w.literal(std::numbers::log2e, a), largest) : w.add(largest, rest);
  const Element infinity = w.literal(std::numeric_limits<double>::infinity(), a);
  const Element is_infinite = w.equal(w.b.apply(MachineOp::kAbs, a), infinity);
  return w.done(w.select(w.b.apply(MachineOp::kAnd, is_infinite, w.equal(a, c)), a, sum), *dtype);
}

// ldexp(self, other): self * 2^other, of one floating dtype
Result write_ldexp(Writing& w) {
  if (!w.one_floating({0, 1})) {
    return std::nullopt;
  }
  const c10::ScalarType dtype = w.type(0);
  const Element power = w.done(w.b.apply(MachineOp::kExp2, w.as(1, dtype)), dtype);
  return w.done(w.mul(w.as(0, dtype), w.b.convert(power, compute_type(dtype))), dtype);
}

}  // namespace

void add_binary_rules(RuleTable& table) {
  add_rule(table, "bitwise_left_shift", write_shift<MachineOp::kShiftLeft>, {"Tensor", "Tensor_Scalar"});
  add_rule(table, "bitwise_right_shift", write_shift<MachineOp::kShiftRight>, {"Tensor", "Tensor_Scalar"});
  add_rule(table, "__lshift__", write_shift<MachineOp::kShiftLeft>, {"Tensor", "Scalar"});
  add_rule(table, "__rshift__", write_shift<MachineOp::kShiftRight>, {"Tensor", "Scalar"});
  add_rule(table, "fmax", write_extremum_of_numbers<MachineOp::kMax>);
  add_rule(table, "fmin", write_extremum_of_numbers<MachineOp::kMin>);
  add_rule(table, "heaviside", write_heaviside);
  add_rule(table, "logaddexp", write_log_of_sum<MachineOp::kExp, false>);
  add_rule(table, "logaddexp2", write_log_of_sum<MachineOp::kExp2, true>);
  add_rule(table, "ldexp", write_ldexp, {"Tensor"});
}

}  // namespace sconce
