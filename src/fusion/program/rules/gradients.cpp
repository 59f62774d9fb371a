// Gradients of activations, as LibTorch's operators *_backward compute them.
#include "fusion/program/rules/rule.h"

#include <cmath>
#include <numbers>

namespace sconce {
namespace {

// Writes a gradient of the tensors at positions 0 and `second`: `compute` gets their elements.
template <typename Compute>
Result write_gradient(Writing& w, Compute compute, size_t second = 1) {
  const Type dtype = w.one_floating({0, second});
  return dtype ? Result(w.done(compute(w.as(0, *dtype), w.as(second, *dtype)), *dtype)) : std::nullopt;
}

bool are_numbers(const Writing& w, std::initializer_list<size_t> positions) {
  return std::all_of(positions.begin(), positions.end(), [&](size_t i) { return w.is_number(i); });
}

// Gradients take 1 minus it, where the last bit counts: rounded as the quotient is.
Element sigmoid_of(Writing& w, Element x) {
  return w.inverse(w.add(w.literal(1, x), w.b.apply(MachineOp::kExp, w.b.apply(MachineOp::kNeg, x))));
}

Element one_minus(Writing& w, Element x) { return w.sub(w.literal(1, x), x); }

// Returns `inside` where low < x < high, and 0 elsewhere.
Element between(Writing& w, Element x, Element low, Element high, Element inside) {
  const Element is_inside = w.b.apply(MachineOp::kAnd, w.less(low, x), w.less(x, high));
  return w.select(is_inside, inside, w.literal(0, x));
}

// sigmoid_backward(grad, output)
Result write_sigmoid_backward(Writing& w) {
  return write_gradient(w, [&](Element grad, Element y) { return w.mul(w.mul(grad, one_minus(w, y)), y); });
}

// tanh_backward(grad, output)
Result write_tanh_backward(Writing& w) {
  w.b.set_may_round();  // LibTorch rounds the square of elements at the end
  return write_gradient(w, [&](Element grad, Element y) {
    return w.mul(grad, w.b.apply(MachineOp::kFma, w.b.apply(MachineOp::kNeg, y), y, w.literal(1, y)));
  });
}

// silu_backward(grad, self)
Result write_silu_backward(Writing& w) {
  return write_gradient(w, [&](Element grad, Element x) {
    const Element sigmoid = sigmoid_of(w, x);
    const Element slope = w.add(w.literal(1, x), w.mul(x, one_minus(w, sigmoid)));
    return w.mul(w.mul(grad, sigmoid), slope);
  });
}

// mish_backward(grad, self)
Result write_mish_backward(Writing& w) {
  return write_gradient(w, [&](Element grad, Element x) {
    const Element soft = w.b.apply(MachineOp::kLog1p, w.b.apply(MachineOp::kExp, x));
    const Element tanh = w.b.apply(MachineOp::kTanh, soft);
    const Element rest = w.mul(w.mul(x, sigmoid_of(w, x)), one_minus(w, w.mul(tanh, tanh)));
    return w.mul(grad, w.add(tanh, rest));
  });
}

// gelu_backward(grad, self, approximate)
Result write_gelu_backward(Writing& w) {
  const auto approximate = w.word(2, {"none", "tanh"});
  if (!approximate) {
    return std::nullopt;
  }
  const bool is_tanh = *approximate == 1;
  return write_gradient(w, [&](Element grad, Element x) {
    const auto plus_one = [&](Element a) { return w.add(w.literal(1, a), a); };
    const Element square = w.mul(x, x);
    if (!is_tanh) {
      const double kDensity = std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2;
      const Element density = w.times(w.b.apply(MachineOp::kExp, w.times(square, -0.5)), kDensity);
      return w.mul(grad, w.add(w.normal_cdf(x), w.mul(x, density)));
    }
    constexpr double kBeta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    constexpr double kCubic = 0.044715;
    const Element inner = w.times(w.add(x, w.times(w.mul(square, x), kCubic)), kBeta);
    const Element tanh = w.b.apply(MachineOp::kTanh, inner);
    const Element left = w.times(plus_one(tanh), 0.5);
    const Element slope = w.times(plus_one(w.times(square, 3 * kCubic)), kBeta);
    const Element right = w.mul(w.mul(w.times(x, 0.5), one_minus(w, w.mul(tanh, tanh))), slope);
    return w.mul(grad, w.add(left, right));
  });
}

// elu_backward(grad, alpha, scale, input_scale, is_result, self_or_result): LibTorch raises for the result of a negative
// alpha.
Result write_elu_backward(Writing& w) {
  if (!are_numbers(w, {1, 2, 3}) || !w[4].constant.isBool() || (w[4].constant.toBool() && !(*w.number(1) >= 0))) {
    return std::nullopt;
  }
  w.b.set_may_round();  // LibTorch multiplies in another order in vectors
  const double below = *w.number(1) * *w.number(2);
  const double input_scale = *w.number(3);
  return write_gradient(
      w,
      [&](Element grad, Element x) {
        Element slope = x;
        if (w[4].constant.toBool()) {
          slope = w.mul(w.times(grad, input_scale), w.add(x, w.literal(below, x)));
        } else {
          const Element exp = w.b.apply(MachineOp::kExp, w.times(x, input_scale));
          slope = w.mul(w.times(w.times(grad, input_scale), below), exp);
        }
        return w.select(w.less(w.literal(0, x), x), w.times(grad, *w.number(2)), slope);
      },
      /*second=*/5);
}

// leaky_relu_backward(grad, self, negative_slope, self_is_result): LibTorch raises for the result of a negative slope.
Result write_leaky_relu_backward(Writing& w) {
  const bool is_result = !w[3].constant.isBool() || w[3].constant.toBool();
  const bool accepts = w.is_number(2) && (!is_result || *w.number(2) >= 0);
  return !accepts ? std::nullopt : write_gradient(w, [&](Element grad, Element x) {
    return w.select(w.less(w.literal(0, x), x), grad, w.mul(grad, w.as(2, w.type(0))));
  });
}

// hardtanh_backward(grad, self, min, max): with a bound of NaN LibTorch's elements are not between.
Result write_hardtanh_backward(Writing& w) {
  const bool accepts = are_numbers(w, {2, 3}) && !std::isnan(*w.number(2)) && !std::isnan(*w.number(3));
  return !accepts ? std::nullopt : write_gradient(w, [&](Element grad, Element x) {
    return between(w, x, w.as(2, w.type(0)), w.as(3, w.type(0)), grad);
  });
}

// hardsigmoid_backward(grad, self)
Result write_hardsigmoid_backward(Writing& w) {
  return write_gradient(
      w, [&](Element grad, Element x) { return between(w, x, w.literal(-3, x), w.literal(3, x), w.times(grad, 1.0F / 6)); });
}

// hardswish_backward(grad, self)
Result write_hardswish_backward(Writing& w) {
  return write_gradient(w, [&](Element grad, Element x) {
    const Element inside = w.mul(grad, w.add(w.div(x, w.literal(3, x)), w.literal(0.5, x)));
    const Element is_low = w.b.apply(MachineOp::kLessEqual, x, w.literal(-3, x));
    const Element is_high = w.b.apply(MachineOp::kLessEqual, w.literal(3, x), x);
    return w.select(is_low, w.literal(0, x), w.select(is_high, grad, inside));
  });
}

// hardshrink_backward(grad, self, lambd) and softshrink_backward: 0 where -lambd <= self <= lambd. LibTorch's vectors and
// its scalars differ where `lambd` is NaN.
Result write_shrink_backward(Writing& w) {
  return !w.is_number(2) || std::isnan(*w.number(2)) ? std::nullopt : write_gradient(w, [&](Element grad, Element x) {
    const Element bound = w.as(2, w.type(0));
    const Element is_low = w.less(x, w.b.apply(MachineOp::kNeg, bound));
    return w.select(w.b.apply(MachineOp::kOr, is_low, w.less(bound, x)), grad, w.literal(0, x));
  });
}

// threshold_backward(grad, self, threshold)
Result write_threshold_backward(Writing& w) {
  const Type dtype = w.is_number(2) ? w.promoted({0, 1}) : std::nullopt;
  if (!dtype || *dtype == at::kBool || w.type(0) != *dtype || w.type(1) != *dtype) {
    return std::nullopt;
  }
  const Element x = w.as(1, *dtype);
  const Element is_low = w.b.apply(MachineOp::kLessEqual, x, w.as(2, *dtype));
  return w.done(w.select(is_low, w.literal(0, x), w.as(0, *dtype)), *dtype);
}

// softplus_backward(grad, self, beta, threshold)
Result write_softplus_backward(Writing& w) {
  return !are_numbers(w, {2, 3}) ? std::nullopt : write_gradient(w, [&](Element grad, Element x) {
    const Element scaled = w.mul(x, w.as(2, w.type(0)));
    const Element z = w.b.apply(MachineOp::kExp, scaled);
    const Element slope = w.div(w.mul(grad, z), w.add(z, w.literal(1, z)));
    return w.select(w.less(w.as(3, w.type(0)), scaled), grad, slope);
  });
}

// log_sigmoid_backward(grad, self, buffer): the buffer has exp(-|self|)
Result write_log_sigmoid_backward(Writing& w) {
  if (!w.one_floating({0, 1, 2})) {
    return std::nullopt;
  }
  return write_gradient(w, [&](Element grad, Element x) {
    const Element is_negative = w.less(x, w.literal(0, x));
    const Element z = w.as(2, w.type(0));
    const Element part = w.div(z, w.add(w.literal(1, z), z));
    const Element high = w.select(is_negative, w.literal(1, x), w.literal(0, x));
    const Element sign = w.select(is_negative, w.literal(1, x), w.literal(-1, x));
    return w.mul(w.sub(high, w.mul(sign, part)), grad);
  });
}

// logit_backward(grad, self, eps): 0 outside of [eps, 1 - eps]; without eps, NaN outside of [0, 1]
Result write_logit_backward(Writing& w) {
  if ((!w.is_none(2) && !w.is_number(2)) || c10::isReducedFloatingType(w.type(0))) {
    return std::nullopt;
  }
  const bool is_bounded = w.is_number(2) && *w.number(2) >= 0;
  return write_gradient(w, [&](Element grad, Element x) {
    const Element low = is_bounded ? w.as(2, w.type(0)) : w.literal(0, x);
    const Element high = one_minus(w, low);
    const Element is_inside =
        w.b.apply(MachineOp::kAnd, w.b.apply(MachineOp::kLessEqual, low, x), w.b.apply(MachineOp::kLessEqual, x, high));
    const Element outside = w.literal(is_bounded ? 0 : std::numeric_limits<double>::quiet_NaN(), x);
    return w.select(is_inside, w.div(grad, w.mul(x, one_minus(w, x))), outside);
  });
}

// native_dropout_backward(grad, mask, scale)
Result write_native_dropout_backward(Writing& w) {
  const Type dtype = w.one_floating({0});
  if (!dtype || !w.is_tensor(1) || w.type(1) != at::kBool || !w.is_number(2)) {
    return std::nullopt;
  }
  const Element kept = w.b.convert(w[1].value, compute_type(*dtype));
  const Element scaled = w.b.convert(w.done(w.mul(kept, w.as(2, *dtype)), *dtype), kept.type);
  return w.done(w.mul(w.as(0, *dtype), scaled), *dtype);
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
