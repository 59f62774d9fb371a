// Elementary functions of one or two elements.
#include "fusion/program/rules/rule.h"

#include <numbers>

namespace sconce {
namespace {

template <MachineOp kOp>
Result write_unary(Writing& w) {
  return w.real_function([&](Element x) { return w.b.apply(kOp, x); });
}

// Functions that round to integers return integers as they are.
template <MachineOp kOp>
Result write_rounding(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  return c10::isIntegralType(dtype, /*includeBool=*/false) ? Result(w.as(0, dtype))
                                                           : w.function([&](Element x) { return w.b.apply(kOp, x); });
}

// Of integers, too.
template <MachineOp kOp>
Result write_real_unary(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  if (dtype == at::kBool || dtype == at::kByte) {
    return std::nullopt;
  }
  return w.done(w.b.apply(kOp, w.as(0, dtype)), dtype);
}

// Of two floating operands.
template <MachineOp kOp>
Result write_binary(Writing& w) {
  const Type dtype = w.promoted_to_floating({0, 1});
  return dtype ? Result(w.done(w.b.apply(kOp, w.rounded(0, *dtype), w.rounded(1, *dtype)), *dtype)) : std::nullopt;
}

// Returns whether kernels convert to the dtype. LibTorch's integers for floating numbers out of range depend on the place.
bool is_convertible(c10::ScalarType from, c10::ScalarType to) {
  const bool rounds = c10::isFloatingType(from) && !c10::isFloatingType(to) && to != at::kBool;
  return is_kernel_type(from) && is_kernel_type(to) && !rounds;
}

bool keeps_strides(const Writing& w, size_t format) {
  return w.is_none(format) || w.number(format) == static_cast<double>(c10::MemoryFormat::Preserve);
}

Result write_clone(Writing& w) {
  return w.is_tensor(0) && is_kernel_type(w.type(0)) && keeps_strides(w, 1) ? Result(w[0].value) : std::nullopt;
}

// to(self, dtype, non_blocking, copy, memory_format)
Result write_cast(Writing& w) {
  if (!w.is_tensor(0) || !w[1].constant.isInt() || !keeps_strides(w, 4)) {
    return std::nullopt;
  }
  const auto dtype = static_cast<c10::ScalarType>(w[1].constant.toInt());
  return dtype != w.type(0) && is_convertible(w.type(0), dtype) ? Result(w.b.convert(w[0].value, dtype)) : std::nullopt;
}

// copy_(self, src, non_blocking)
Result write_copy_in_place(Writing& w) {
  return w.is_tensor(1) && is_convertible(w.type(1), w.type(0)) ? Result(w.b.convert(w[1].value, w.type(0))) : std::nullopt;
}

// _to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format)
Result write_to_copy(Writing& w) {
  const bool stays = w.is_none(2) && w.is_none(3) && w.is_none(4);
  if (!w.is_tensor(0) || !stays || !keeps_strides(w, 6) || !(w.is_none(1) || w[1].constant.isInt())) {
    return std::nullopt;
  }
  const auto dtype = w.is_none(1) ? w.type(0) : static_cast<c10::ScalarType>(w[1].constant.toInt());
  return is_convertible(w.type(0), dtype) ? Result(w.b.convert(w[0].value, dtype)) : std::nullopt;
}

// angle(self): of a number, 0 or pi
Result write_angle(Writing& w) {
  return w.real_function([&](Element x) {
    const Element angle = w.select(w.less(x, w.literal(0, x)), w.literal(std::numbers::pi, x), w.literal(0, x));
    return w.select(w.different(x, x), x, angle);
  });
}

Result write_hypot(Writing& w) {
  const Type dtype = w.promoted_floating({0, 1});
  return dtype ? Result(w.done(w.b.apply(MachineOp::kHypot, w.rounded(0, *dtype), w.rounded(1, *dtype)), *dtype))
               : std::nullopt;
}

Result write_sign(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  if (dtype == at::kBool) {
    return w[0].value;
  }
  const Element x = w.as(0, dtype);
  const Element zero = w.literal(0, x);
  const Element one = w.literal(1, x);
  const auto as_number = [&](Element condition) { return w.select(condition, one, zero); };
  return w.done(w.sub(as_number(w.less(zero, x)), as_number(w.less(x, zero))), dtype);
}

Result write_frac(Writing& w) {
  return w.function([&](Element x) { return w.sub(x, w.b.apply(MachineOp::kTrunc, x)); });
}

Result write_reciprocal(Writing& w) {
  return w.real_function([&](Element x) { return w.inverse(x); });
}

Result write_sqrt(Writing& w) {
  return w.real_function([&](Element x) { return w.root(x); });
}

Result write_rsqrt(Writing& w) {
  return w.real_function([&](Element x) { return w.inverse_root(x); });
}

// logit(self, eps): log(x / (1 - x)), of x within [eps, 1 - eps] if eps is given
Result write_logit(Writing& w) {
  return w.real_function([&](Element x) {
    if (w.is_number(1)) {
      const Element low = w.number_as(w[1].constant, x.type);
      const Element high = w.sub(w.literal(1, x), low);
      x = w.select(w.less(x, low), low, w.select(w.less(high, x), high, x));
    }
    return w.b.apply(MachineOp::kLog, w.div(x, w.sub(w.literal(1, x), x)));
  });
}

// xlogy(self, other), special_xlog1py(self, other): self times the logarithm, 0 where self is 0, whatever other is but NaN
template <MachineOp kLogarithm>
Result write_times_logarithm(Writing& w) {
  const Type dtype = w.promoted_to_floating({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  const Element x = w.rounded(0, *dtype);
  const Element y = w.rounded(1, *dtype);
  const Element zero = w.literal(0, x);
  const Element product = w.select(w.equal(x, zero), zero, w.mul(x, w.b.apply(kLogarithm, y)));
  return w.done(w.select(w.different(y, y), y, product), *dtype);
}

template <bool kToDegrees>
Result write_degrees(Writing& w) {
  constexpr double kDegrees = 180 * std::numbers::inv_pi;
  return w.function([&](Element x) { return w.times(x, kToDegrees ? kDegrees : std::numbers::pi / 180); });
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
  add_rule(table, "exp", write_unary<MachineOp::kExp>);
  add_rule(table, "exp2", write_unary<MachineOp::kExp2>);
  add_rule(table, "expm1", write_unary<MachineOp::kExpm1>);
  add_rule(table, "log", write_unary<MachineOp::kLog>);
  add_rule(table, "log1p", write_unary<MachineOp::kLog1p>);
  add_rule(table, "log2", write_unary<MachineOp::kLog2>);
  add_rule(table, "log10", write_unary<MachineOp::kLog10>);
  add_rule(table, "logit", write_logit);
  add_rule(table, "xlogy", write_times_logarithm<MachineOp::kLog>, {"Tensor", "Scalar_Self", "Scalar_Other"});
  add_rule(table, "special_xlog1py", write_times_logarithm<MachineOp::kLog1p>, {"", "self_scalar", "other_scalar"});
  add_rule(table, "erf", write_unary<MachineOp::kErf>);
  add_rule(table, "erfc", write_unary<MachineOp::kErfc>);
  add_rule(table, "sin", write_unary<MachineOp::kSin>);
  add_rule(table, "cos", write_unary<MachineOp::kCos>);
  add_rule(table, "tan", write_unary<MachineOp::kTan>);
  add_rule(table, "asin", write_unary<MachineOp::kAsin>);
  add_rule(table, "acos", write_unary<MachineOp::kAcos>);
  add_rule(table, "atan", write_unary<MachineOp::kAtan>);
  add_rule(table, "atan2", write_binary<MachineOp::kAtan2>);
  add_rule(table, "sinh", write_unary<MachineOp::kSinh>);
  add_rule(table, "cosh", write_unary<MachineOp::kCosh>);
  add_rule(table, "tanh", write_unary<MachineOp::kTanh>);
  add_rule(table, "lgamma", write_unary<MachineOp::kLgamma>);
  add_rule(table, "hypot", write_hypot);
  add_rule(table, "atanh", write_unary<MachineOp::kAtanh>);
  add_rule(table, "deg2rad", write_degrees<false>);
  add_rule(table, "rad2deg", write_degrees<true>);
}

}  // namespace sconce
