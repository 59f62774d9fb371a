// Shifts, and other functions of two operands.
#include "fusion/program/rules/rule.h"

#include <numbers>

namespace sconce {
namespace {

// Shifts by less than 0 or by all bits give 0; to the right, copies of the sign.
template <MachineOp kOp>
Result write_shift(RuleArguments& args) {
  const Type dtype = args.promoted({0, 1});
  if (!dtype || !c10::isIntegralType(*dtype, /*includeBool=*/false)) {
    return std::nullopt;
  }
  const bool is_unsigned = *dtype == at::kByte;
  const auto bits = static_cast<int64_t>(c10::elementSize(*dtype) * 8);
  const Element x = args.as(0, *dtype);
  const Element by = args.as(1, *dtype);
  const int64_t most = kOp == MachineOp::kShiftLeft || is_unsigned ? bits - 1 : bits - 2;
  const Element last = args.b.integer(most, *dtype);
  const Element is_within = args.b.apply(MachineOp::kAnd, args.b.apply(MachineOp::kGreaterEqual, by, args.literal(0, by)),
                                         args.b.apply(MachineOp::kLessEqual, by, last));
  const Element shifted = args.b.apply(kOp, x, args.select(is_within, by, args.literal(0, by)));
  const Element beyond = kOp == MachineOp::kShiftLeft || is_unsigned
                             ? args.literal(0, x)
                             : args.b.apply(kOp, x, args.b.integer(bits - 1, *dtype));
  return args.select(is_within, shifted, beyond);
}

// The larger or smaller operand; a number rather than NaN. Which of two zeros LibTorch returns depends on the place of the
// element.
template <MachineOp kOp>
Result write_extremum_of_numbers(RuleArguments& args) {
  const Type dtype = args.promoted({0, 1});
  if (!dtype || *dtype == at::kBool) {
    return std::nullopt;
  }
  const Element a = args.rounded(0, *dtype);
  const Element c = args.rounded(1, *dtype);
  const Element extremum = args.b.apply(kOp, a, c);
  if (!c10::isFloatingType(*dtype)) {
    return extremum;
  }
  args.b.set_may_differ();
  return args.done(args.select(args.different(a, a), c, args.select(args.different(c, c), a, extremum)), *dtype);
}

// heaviside(self, values): `values` where self is 0
Result write_heaviside(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  if (args.type(1) != dtype || dtype == at::kBool) {
    return std::nullopt;
  }
  const Element x = args.as(0, dtype);
  const Element zero = args.literal(0, x);
  const Element step = args.select(args.less(zero, x), args.literal(1, x), zero);
  return args.done(args.select(args.equal(x, zero), args.as(1, dtype), step), dtype);
}

// logaddexp(self, other), to the base e or 2
template <MachineOp kExp, bool kToBase2>
Result write_log_of_sum(RuleArguments& args) {
  const Type dtype = args.promoted_floating({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  const Element a = args.rounded(0, *dtype);
  const Element c = args.rounded(1, *dtype);
  const Element distance = args.b.apply(MachineOp::kAbs, args.sub(a, c));
  const Element rest = args.b.apply(MachineOp::kLog1p, args.b.apply(kExp, args.b.apply(MachineOp::kNeg, distance)));
  const Element largest = args.b.apply(MachineOp::kMax, a, c);
  const Element sum = kToBase2 ? args.b.apply(MachineOp::kFma, rest, args.literal(std::numbers::log2e, a), largest)
                               : args.add(largest, rest);
  const Element infinity = args.literal(std::numeric_limits<double>::infinity(), a);
  const Element is_infinite = args.equal(args.b.apply(MachineOp::kAbs, a), infinity);
  return args.done(args.select(args.b.apply(MachineOp::kAnd, is_infinite, args.equal(a, c)), a, sum), *dtype);
}

// ldexp(self, other): self * 2^other, of one floating dtype
Result write_ldexp(RuleArguments& args) {
  if (!args.one_floating({0, 1})) {
    return std::nullopt;
  }
  const c10::ScalarType dtype = args.type(0);
  const Element power = args.done(args.b.apply(MachineOp::kExp2, args.as(1, dtype)), dtype);
  return args.done(args.mul(args.as(0, dtype), args.b.convert(power, compute_type(dtype))), dtype);
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
