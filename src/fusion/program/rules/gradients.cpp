// Gradients of activations, as LibTorch's operators *_backward compute them.
#include "fusion/program/rules/rule.h"

#include <cmath>
#include <numbers>

namespace sconce {
namespace {

// Writes a gradient of the tensors at positions 0 and `second`: `compute` gets their elements.
template <typename Compute>
Result write_gradient(RuleArguments& args, Compute compute, size_t second = 1) {
  const Type dtype = args.one_floating({0, second});
  return dtype ? Result(args.done(compute(args.as(0, *dtype), args.as(second, *dtype)), *dtype)) : std::nullopt;
}

bool are_numbers(const RuleArguments& args, std::initializer_list<size_t> positions) {
  return std::all_of(positions.begin(), positions.end(), [&](size_t i) { return args.is_number(i); });
}

// Gradients take 1 minus it, where the last bit counts: rounded as the quotient is.
Element sigmoid_of(RuleArguments& args, Element x) {
  return args.inverse(args.add(args.literal(1, x), args.b.apply(MachineOp::kExp, args.b.apply(MachineOp::kNeg, x))));
}

Element one_minus(RuleArguments& args, Element x) { return args.sub(args.literal(1, x), x); }

// Says that the place of the element decides what LibTorch computes for an operand of NaN: its vectors compare otherwise
// than its scalars.
void differs_at_nan(RuleArguments& args) { args.b.set_may_differ(); }

// Returns `inside` where low < x < high, and 0 elsewhere.
Element between(RuleArguments& args, Element x, Element low, Element high, Element inside) {
  differs_at_nan(args);
  const Element is_inside = args.b.apply(MachineOp::kAnd, args.less(low, x), args.less(x, high));
  return args.select(is_inside, inside, args.literal(0, x));
}

// sigmoid_backward(grad, output)
Result write_sigmoid_backward(RuleArguments& args) {
  return write_gradient(args, [&](Element grad, Element y) { return args.mul(args.mul(grad, one_minus(args, y)), y); });
}

// tanh_backward(grad, output)
Result write_tanh_backward(RuleArguments& args) {
  args.b.set_may_differ();  // LibTorch rounds the square of elements at the end
  return write_gradient(args, [&](Element grad, Element y) {
    return args.mul(grad, args.b.apply(MachineOp::kFma, args.b.apply(MachineOp::kNeg, y), y, args.literal(1, y)));
  });
}

// silu_backward(grad, self)
Result write_silu_backward(RuleArguments& args) {
  return write_gradient(args, [&](Element grad, Element x) {
    const Element sigmoid = sigmoid_of(args, x);
    const Element slope = args.add(args.literal(1, x), args.mul(x, one_minus(args, sigmoid)));
    return args.mul(args.mul(grad, sigmoid), slope);
  });
}

// mish_backward(grad, self)
Result write_mish_backward(RuleArguments& args) {
  return write_gradient(args, [&](Element grad, Element x) {
    const Element soft = args.b.apply(MachineOp::kLog1p, args.b.apply(MachineOp::kExp, x));
    const Element tanh = args.b.apply(MachineOp::kTanh, soft);
    const Element rest = args.mul(args.mul(x, sigmoid_of(args, x)), one_minus(args, args.mul(tanh, tanh)));
    return args.mul(grad, args.add(tanh, rest));
  });
}

// gelu_backward(grad, self, approximate)
Result write_gelu_backward(RuleArguments& args) {
  const auto approximate = args.word(2, {"none", "tanh"});
  if (!approximate) {
    return std::nullopt;
  }
  const bool is_tanh = *approximate == 1;
  return write_gradient(args, [&](Element grad, Element x) {
    const auto plus_one = [&](Element a) { return args.add(args.literal(1, a), a); };
    const Element square = args.mul(x, x);
    if (!is_tanh) {
      const double kDensity = std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2;
      const Element density = args.times(args.b.apply(MachineOp::kExp, args.times(square, -0.5)), kDensity);
      return args.mul(grad, args.add(args.normal_cdf(x), args.mul(x, density)));
    }
    constexpr double kBeta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    constexpr double kCubic = 0.044715;
    const Element inner = args.times(args.add(x, args.times(args.mul(square, x), kCubic)), kBeta);
    const Element tanh = args.b.apply(MachineOp::kTanh, inner);
    const Element left = args.times(plus_one(tanh), 0.5);
    const Element slope = args.times(plus_one(args.times(square, 3 * kCubic)), kBeta);
    const Element right = args.mul(args.mul(args.times(x, 0.5), one_minus(args, args.mul(tanh, tanh))), slope);
    return args.mul(grad, args.add(left, right));
  });
}

// elu_backward(grad, alpha, scale, input_scale, is_result, self_or_result): LibTorch raises for the result of a negative
// alpha.
Result write_elu_backward(RuleArguments& args) {
  if (!are_numbers(args, {1, 2, 3}) || !args[4].constant.isBool() ||
      (args[4].constant.toBool() && !(*args.number(1) >= 0))) {
    return std::nullopt;
  }
  args.b.set_may_differ();  // LibTorch multiplies in another order in vectors
  const double below = *args.number(1) * *args.number(2);
  const double input_scale = *args.number(3);
  return write_gradient(
      args,
      [&](Element grad, Element x) {
        Element slope = x;
        if (args[4].constant.toBool()) {
          slope = args.mul(args.times(grad, input_scale), args.add(x, args.literal(below, x)));
        } else {
          const Element exp = args.b.apply(MachineOp::kExp, args.times(x, input_scale));
          slope = args.mul(args.times(args.times(grad, input_scale), below), exp);
        }
        return args.select(args.less(args.literal(0, x), x), args.times(grad, *args.number(2)), slope);
      },
      /*second=*/5);
}

// leaky_relu_backward(grad, self, negative_slope, self_is_result): LibTorch raises for the result of a negative slope.
Result write_leaky_relu_backward(RuleArguments& args) {
  const bool is_result = !args[3].constant.isBool() || args[3].constant.toBool();
  const bool accepts = args.is_number(2) && (!is_result || *args.number(2) >= 0);
  return !accepts ? std::nullopt : write_gradient(args, [&](Element grad, Element x) {
    return args.select(args.less(args.literal(0, x), x), grad, args.mul(grad, args.as(2, args.type(0))));
  });
}

// hardtanh_backward(grad, self, min, max): with a bound of NaN LibTorch's elements are not between.
Result write_hardtanh_backward(RuleArguments& args) {
  const bool accepts = are_numbers(args, {2, 3}) && !std::isnan(*args.number(2)) && !std::isnan(*args.number(3));
  return !accepts ? std::nullopt : write_gradient(args, [&](Element grad, Element x) {
    return between(args, x, args.as(2, args.type(0)), args.as(3, args.type(0)), grad);
  });
}

// hardsigmoid_backward(grad, self)
Result write_hardsigmoid_backward(RuleArguments& args) {
  return write_gradient(args, [&](Element grad, Element x) {
    return between(args, x, args.literal(-3, x), args.literal(3, x), args.times(grad, 1.0F / 6));
  });
}

// hardswish_backward(grad, self)
Result write_hardswish_backward(RuleArguments& args) {
  differs_at_nan(args);
  return write_gradient(args, [&](Element grad, Element x) {
    const Element inside = args.mul(grad, args.add(args.div(x, args.literal(3, x)), args.literal(0.5, x)));
    const Element is_low = args.b.apply(MachineOp::kLessEqual, x, args.literal(-3, x));
    const Element is_high = args.b.apply(MachineOp::kLessEqual, args.literal(3, x), x);
    return args.select(is_low, args.literal(0, x), args.select(is_high, grad, inside));
  });
}

// hardshrink_backward(grad, self, lambd) and softshrink_backward: 0 where -lambd <= self <= lambd. LibTorch's vectors and
// its scalars differ where `lambd` is NaN.
Result write_shrink_backward(RuleArguments& args) {
  differs_at_nan(args);
  return !args.is_number(2) || std::isnan(*args.number(2))
             ? std::nullopt
             : write_gradient(args, [&](Element grad, Element x) {
                 const Element bound = args.as(2, args.type(0));
                 const Element is_low = args.less(x, args.b.apply(MachineOp::kNeg, bound));
                 return args.select(args.b.apply(MachineOp::kOr, is_low, args.less(bound, x)), grad, args.literal(0, x));
               });
}

// threshold_backward(grad, self, threshold)
Result write_threshold_backward(RuleArguments& args) {
  const Type dtype = args.is_number(2) ? args.promoted({0, 1}) : std::nullopt;
  if (!dtype || *dtype == at::kBool || args.type(0) != *dtype || args.type(1) != *dtype) {
    return std::nullopt;
  }
  const Element x = args.as(1, *dtype);
  const Element is_low = args.b.apply(MachineOp::kLessEqual, x, args.as(2, *dtype));
  return args.done(args.select(is_low, args.literal(0, x), args.as(0, *dtype)), *dtype);
}

// softplus_backward(grad, self, beta, threshold)
Result write_softplus_backward(RuleArguments& args) {
  return !are_numbers(args, {2, 3}) ? std::nullopt : write_gradient(args, [&](Element grad, Element x) {
    const Element scaled = args.mul(x, args.as(2, args.type(0)));
    const Element z = args.b.apply(MachineOp::kExp, scaled);
    const Element slope = args.div(args.mul(grad, z), args.add(z, args.literal(1, z)));
    return args.select(args.less(args.as(3, args.type(0)), scaled), grad, slope);
  });
}

// log_sigmoid_backward(grad, self, buffer): the buffer has exp(-|self|)
Result write_log_sigmoid_backward(RuleArguments& args) {
  if (!args.one_floating({0, 1, 2})) {
    return std::nullopt;
  }
  return write_gradient(args, [&](Element grad, Element x) {
    const Element is_negative = args.less(x, args.literal(0, x));
    const Element z = args.as(2, args.type(0));
    const Element part = args.div(z, args.add(args.literal(1, z), z));
    const Element high = args.select(is_negative, args.literal(1, x), args.literal(0, x));
    const Element sign = args.select(is_negative, args.literal(1, x), args.literal(-1, x));
    return args.mul(args.sub(high, args.mul(sign, part)), grad);
  });
}

// logit_backward(grad, self, eps): 0 outside of [eps, 1 - eps]; without eps, NaN outside of [0, 1]
Result write_logit_backward(RuleArguments& args) {
  if ((!args.is_none(2) && !args.is_number(2)) || c10::isReducedFloatingType(args.type(0))) {
    return std::nullopt;
  }
  differs_at_nan(args);
  const bool is_bounded = args.is_number(2) && *args.number(2) >= 0;
  return write_gradient(args, [&](Element grad, Element x) {
    const Element low = is_bounded ? args.as(2, args.type(0)) : args.literal(0, x);
    const Element high = one_minus(args, low);
    const Element is_inside = args.b.apply(MachineOp::kAnd, args.b.apply(MachineOp::kLessEqual, low, x),
                                           args.b.apply(MachineOp::kLessEqual, x, high));
    const Element outside = args.literal(is_bounded ? 0 : std::numeric_limits<double>::quiet_NaN(), x);
    return args.select(is_inside, args.div(grad, args.mul(x, one_minus(args, x))), outside);
  });
}

// native_dropout_backward(grad, mask, scale)
Result write_native_dropout_backward(RuleArguments& args) {
  const Type dtype = args.one_floating({0});
  if (!dtype || !args.is_tensor(1) || args.type(1) != at::kBool || !args.is_number(2)) {
    return std::nullopt;
  }
  const Element kept = args.b.convert(args[1].value, compute_type(*dtype));
  const Element scaled = args.b.convert(args.done(args.mul(kept, args.as(2, *dtype)), *dtype), kept.type);
  return args.done(args.mul(args.as(0, *dtype), scaled), *dtype);
}

}  // namespace

void add_gradient_rules(RuleTable& table) {
  add_rule(table, "sigmoid_backward", write_sigmoid_backward);
  add_rule(table, "tanh_backward", write_tanh_backward);
  add_rule(table, "silu_backward", write_silu_backward);
  add_rule(table, "mish_backward", write_mish_backward);
  add_rule(table, "gelu_backward", write_gelu_backward);
  add_rule(table, "elu_backward", write_elu_backward);
  add_rule(table, "leaky_relu_backward", write_leaky_relu_backward);
  add_rule(table, "hardtanh_backward", write_hardtanh_backward);
  add_rule(table, "hardsigmoid_backward", write_hardsigmoid_backward);
  add_rule(table, "hardswish_backward", write_hardswish_backward);
  add_rule(table, "hardshrink_backward", write_shrink_backward);
  add_rule(table, "softshrink_backward", write_shrink_backward);
  add_rule(table, "threshold_backward", write_threshold_backward);
  add_rule(table, "softplus_backward", write_softplus_backward);
  add_rule(table, "log_sigmoid_backward", write_log_sigmoid_backward);
  add_rule(table, "logit_backward", write_logit_backward);
  add_rule(table, "native_dropout_backward", write_native_dropout_backward);
}

}  // namespace sconce
