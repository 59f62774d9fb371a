// Elementary functions of one or two elements.
#include "fusion/program/rules/rule.h"

#include <numbers>

namespace sconce {
namespace {

// Functions that round to integers return integers as they are.
template <MachineOp kOp>
Result write_rounding(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  return c10::isIntegralType(dtype, /*includeBool=*/false) ? Result(args.as(0, dtype))
                                                           : args.function([&](Element x) { return args.b.apply(kOp, x); });
}

// Of integers, too.
template <MachineOp kOp>
Result write_real_unary(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  if (dtype == at::kBool || dtype == at::kByte) {
    return std::nullopt;
  }
  return args.done(args.b.apply(kOp, args.as(0, dtype)), dtype);
}

// Of two floating operands.
template <MachineOp kOp>
Result write_binary(RuleArguments& args) {
  const Type dtype = args.promoted_to_floating({0, 1});
  return dtype ? Result(args.done(args.b.apply(kOp, args.rounded(0, *dtype), args.rounded(1, *dtype)), *dtype))
               : std::nullopt;
}

// Returns whether kernels convert to the dtype. LibTorch's integers for floating numbers out of range depend on the place.
bool is_convertible(c10::ScalarType from, c10::ScalarType to) {
  const bool rounds = c10::isFloatingType(from) && !c10::isFloatingType(to) && to != at::kBool;
  return is_kernel_type(from) && is_kernel_type(to) && !rounds;
}

bool keeps_strides(const RuleArguments& args, size_t format) {
  return args.is_none(format) || args.number(format) == static_cast<double>(c10::MemoryFormat::Preserve);
}

Result write_clone(RuleArguments& args) {
  return args.is_tensor(0) && is_kernel_type(args.type(0)) && keeps_strides(args, 1) ? Result(args[0].value) : std::nullopt;
}

// to(self, dtype, non_blocking, copy, memory_format)
Result write_cast(RuleArguments& args) {
  if (!args.is_tensor(0) || !args[1].constant.isInt() || !keeps_strides(args, 4)) {
    return std::nullopt;
  }
  const auto dtype = static_cast<c10::ScalarType>(args[1].constant.toInt());
  return dtype != args.type(0) && is_convertible(args.type(0), dtype) ? Result(args.b.convert(args[0].value, dtype))
                                                                      : std::nullopt;
}

// copy_(self, src, non_blocking)
Result write_copy_in_place(RuleArguments& args) {
  return args.is_tensor(1) && is_convertible(args.type(1), args.type(0))
             ? Result(args.b.convert(args[1].value, args.type(0)))
             : std::nullopt;
}

// _to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format)
Result write_to_copy(RuleArguments& args) {
  const bool stays = args.is_none(2) && args.is_none(3) && args.is_none(4);
  if (!args.is_tensor(0) || !stays || !keeps_strides(args, 6) || !(args.is_none(1) || args[1].constant.isInt())) {
    return std::nullopt;
  }
  const auto dtype = args.is_none(1) ? args.type(0) : static_cast<c10::ScalarType>(args[1].constant.toInt());
  return is_convertible(args.type(0), dtype) ? Result(args.b.convert(args[0].value, dtype)) : std::nullopt;
}

// angle(self): of a number, 0 or pi
Result write_angle(RuleArguments& args) {
  return args.real_function([&](Element x) {
    const Element angle =
        args.select(args.less(x, args.literal(0, x)), args.literal(std::numbers::pi, x), args.literal(0, x));
    return args.select(args.different(x, x), x, angle);
  });
}

Result write_hypot(RuleArguments& args) {
  const Type dtype = args.promoted_floating({0, 1});
  return dtype ? Result(args.done(args.b.apply(MachineOp::kHypot, args.rounded(0, *dtype), args.rounded(1, *dtype)), *dtype))
               : std::nullopt;
}

Result write_sign(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  if (dtype == at::kBool) {
    return args[0].value;
  }
  const Element x = args.as(0, dtype);
  const Element zero = args.literal(0, x);
  const Element one = args.literal(1, x);
  const auto as_number = [&](Element condition) { return args.select(condition, one, zero); };
  return args.done(args.sub(as_number(args.less(zero, x)), as_number(args.less(x, zero))), dtype);
}

Result write_frac(RuleArguments& args) {
  return args.function([&](Element x) { return args.sub(x, args.b.apply(MachineOp::kTrunc, x)); });
}

Result write_reciprocal(RuleArguments& args) {
  return args.real_function([&](Element x) { return args.inverse(x); });
}

Result write_sqrt(RuleArguments& args) {
  return args.real_function([&](Element x) { return args.root(x); });
}

Result write_rsqrt(RuleArguments& args) {
  return args.real_function([&](Element x) { return args.inverse_root(x); });
}

// logit(self, eps): log(x / (1 - x)), of x within [eps, 1 - eps] if eps is given
Result write_logit(RuleArguments& args) {
  return args.real_function([&](Element x) {
    if (args.is_number(1)) {
      const Element low = args.number_as(args[1].constant, x.type);
      const Element high = args.sub(args.literal(1, x), low);
      x = args.select(args.less(x, low), low, args.select(args.less(high, x), high, x));
    }
    return args.b.apply(MachineOp::kLog, args.div(x, args.sub(args.literal(1, x), x)));
  });
}

// xlogy(self, other), special_xlog1py(self, other): self times the logarithm, 0 where self is 0, whatever other is but NaN
template <MachineOp kLogarithm>
Result write_times_logarithm(RuleArguments& args) {
  const Type dtype = args.promoted_to_floating({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  const Element x = args.rounded(0, *dtype);
  const Element y = args.rounded(1, *dtype);
  const Element zero = args.literal(0, x);
  const Element product = args.select(args.equal(x, zero), zero, args.mul(x, args.b.apply(kLogarithm, y)));
  return args.done(args.select(args.different(y, y), y, product), *dtype);
}

template <bool kToDegrees>
Result write_degrees(RuleArguments& args) {
  constexpr double kDegrees = 180 * std::numbers::inv_pi;
  return args.function([&](Element x) { return args.times(x, kToDegrees ? kDegrees : std::numbers::pi / 180); });
}

}  // namespace

void add_function_rules(RuleTable& table) {
  add_rule(table, "abs", write_real_unary<MachineOp::kAbs>);
  add_rule(table, "neg", write_real_unary<MachineOp::kNeg>);
  add_rule(table, "angle", write_angle);
  add_rule(table, "sign", write_sign);
  add_rule(table, "sgn", write_sign);
  add_rule(table, "frac", write_frac);
  add_rule(table, "floor", write_rounding<MachineOp::kFloor>);
  add_rule(table, "ceil", write_rounding<MachineOp::kCeil>);
  add_rule(table, "trunc", write_rounding<MachineOp::kTrunc>);
  add_rule(table, "round", write_rounding<MachineOp::kRound>);
  add_rule(table, "sqrt", write_sqrt);
  add_rule(table, "rsqrt", write_rsqrt);
  add_rule(table, "reciprocal", write_reciprocal);
  add_rule(table, "to", write_cast, {"dtype"});
  add_rule(table, "_to_copy", write_to_copy);
  add_rule(table, "clone", write_clone);
  add_rule(table, "copy_", write_copy_in_place);
  using enum MachineOp;
  for (const MachineOp op : {kExp, kExp2, kExpm1, kLog,  kLog1p, kLog2, kLog10, kErf,  kErfc,   kSin,
                             kCos, kTan,  kAsin,  kAcos, kAtan,  kSinh, kCosh,  kTanh, kLgamma, kAtanh}) {
    add_rule(table, name_of(op),
             [op](RuleArguments& args) { return args.real_function([&](Element x) { return args.b.apply(op, x); }); });
  }
  add_rule(table, "logit", write_logit);
  add_rule(table, "xlogy", write_times_logarithm<MachineOp::kLog>, {"Tensor", "Scalar_Self", "Scalar_Other"});
  add_rule(table, "special_xlog1py", write_times_logarithm<MachineOp::kLog1p>, {"", "self_scalar", "other_scalar"});
  add_rule(table, "atan2", write_binary<MachineOp::kAtan2>);
  add_rule(table, "hypot", write_hypot);
  add_rule(table, "deg2rad", write_degrees<false>);
  add_rule(table, "rad2deg", write_degrees<true>);
}

}  // namespace sconce
