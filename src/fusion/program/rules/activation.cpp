// Activations.
#include "fusion/program/rules/rule.h"

#include <cmath>
#include <numbers>

namespace sconce {
namespace {

Result write_sigmoid(Writing& w) {
  return w.function([&](Element x) { return w.sigmoid(x); });
}

Result write_silu(Writing& w) {
  return w.function([&](Element x) { return w.div(x, w.one_plus_exp_of_negative(x)); });
}

Result write_log_sigmoid(Writing& w) {
  return w.function([&](Element x) {
    const Element size = w.b.apply(MachineOp::kAbs, x);
    const Element rest = w.b.apply(MachineOp::kLog1p, w.b.apply(MachineOp::kExp, w.b.apply(MachineOp::kNeg, size)));
    return w.sub(w.b.apply(MachineOp::kMin, w.literal(0, x), x), rest);
  });
}

// gelu(self, approximate)
Result write_gelu(Writing& w) {
  const auto approximate = w.word(1, {"none", "tanh"});
  if (!approximate) {
    return std::nullopt;
  }
  const bool is_tanh = *approximate == 1;
  return w.function([&](Element x) {
    if (!is_tanh) {
      return w.mul(x, w.normal_cdf(x));
    }
    const Element cube = w.mul(w.mul(x, x), x);
    const Element inner = w.times(w.add(x, w.times(cube, 0.044715)), std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
    return w.mul(w.times(x, 0.5), w.add(w.literal(1, x), w.b.apply(MachineOp::kTanh, inner)));
  });
}

// x · scale above 0, and (exp(x · input_scale) - 1) · below elsewhere
Element elu_of(Writing& w, Element x, double below, double scale, double input_scale) {
  const Element soft = w.times(w.b.apply(MachineOp::kExpm1, w.times(x, input_scale)), below);
  return w.select(w.less(x, w.literal(0, x)), soft, w.times(x, scale));
}

// elu(self, alpha, scale, input_scale)
Result write_elu(Writing& w) {
  if (!w.is_number(1) || !w.is_number(2) || !w.is_number(3)) {
    return std::nullopt;
  }
  return w.function([&](Element x) { return elu_of(w, x, *w.number(1) * *w.number(2), *w.number(2), *w.number(3)); });
}

Result write_selu(Writing& w) {
  constexpr double kAlpha = 1.6732632423543772848170429916717;
  constexpr double kScale = 1.0507009873554804934193349852946;
  return w.function([&](Element x) { return elu_of(w, x, kAlpha * kScale, kScale, 1); });
}

// celu(self, alpha)
Result write_celu(Writing& w) {
  if (!w.is_number(1) || *w.number(1) == 0) {
    return std::nullopt;
  }
  return w.function([&](Element x) { return elu_of(w, x, *w.number(1), 1, 1 / *w.number(1)); });
}

// softplus(self, beta, threshold)
Result write_softplus(Writing& w) {
  if (!w.is_number(1) || !w.is_number(2)) {
    return std::nullopt;
  }
  return w.function([&](Element x) {
    const Element beta = w.as(1, w.type(0));
    const Element scaled = w.mul(x, beta);
    const Element soft = w.div(w.b.apply(MachineOp::kLog1p, w.b.apply(MachineOp::kExp, scaled)), beta);
    return w.select(w.less(w.as(2, w.type(0)), scaled), x, soft);
  });
}

Result write_mish(Writing& w) {
  return w.function([&](Element x) {
    const Element soft = w.b.apply(MachineOp::kLog1p, w.b.apply(MachineOp::kExp, x));
    return w.mul(x, w.b.apply(MachineOp::kTanh, soft));
  });
}

// hardshrink(self, lambd)
Result write_hardshrink(Writing& w) {
  return w.is_number(1) ? w.function([&](Element x) {
    const Element bound = w.as(1, w.type(0));
    const Element is_above = w.b.apply(MachineOp::kLessEqual, w.b.apply(MachineOp::kNeg, bound), x);
    const Element is_below = w.b.apply(MachineOp::kLessEqual, x, bound);
    return w.select(w.b.apply(MachineOp::kAnd, is_above, is_below), w.literal(0, x), x);
  })
                        : std::nullopt;
}

// softshrink(self, lambd): LibTorch raises unless `lambd` is finite and not negative.
Result write_softshrink(Writing& w) {
  const bool accepts = w.is_number(1) && *w.number(1) >= 0 && std::isfinite(*w.number(1));
  return accepts ? w.function([&](Element x) {
    const Element bound = w.as(1, w.type(0));
    const Element inner = w.select(w.different(x, x), x, w.literal(0, x));
    const Element low = w.select(w.less(x, w.b.apply(MachineOp::kNeg, bound)), w.add(x, bound), inner);
    return w.select(w.less(bound, x), w.sub(x, bound), low);
  })
                 : std::nullopt;
}

}  // namespace

void add_activation_rules(RuleTable& table) {
  add_rule(table, "sigmoid", write_sigmoid);
  add_rule(table, "silu", write_silu);
  add_rule(table, "log_sigmoid", write_log_sigmoid);
  add_rule(table, "gelu", write_gelu);
  add_rule(table, "elu", write_elu);
  add_rule(table, "selu", write_selu);
  add_rule(table, "celu", write_celu);
  add_rule(table, "softplus", write_softplus);
  add_rule(table, "mish", write_mish);
  add_rule(table, "hardshrink", write_hardshrink);
  add_rule(table, "softshrink", write_softshrink);
}

}  // namespace sconce
