// Activations.
#include "fusion/program/rules/rule.h"

#include <cmath>
#include <numbers>

namespace sconce {
namespace {

Result write_sigmoid(RuleArguments& args) {
  return args.function([&](Element x) { return args.sigmoid(x); });
}

Result write_silu(RuleArguments& args) {
  return args.function([&](Element x) {
    return x.type == at::kFloat ? args.mul(x, args.sigmoid(x)) : args.div(x, args.one_plus_exp_of_negative(x));
  });
}

Result write_log_sigmoid(RuleArguments& args) {
  return args.function([&](Element x) {
    const Element size = args.b.apply(MachineOp::kAbs, x);
    const Element rest = args.b.apply(MachineOp::kLog1p, args.b.apply(MachineOp::kExp, args.b.apply(MachineOp::kNeg, size)));
    return args.sub(args.b.apply(MachineOp::kMin, args.literal(0, x), x), rest);
  });
}

// gelu(self, approximate)
Result write_gelu(RuleArguments& args) {
  const auto approximate = args.word(1, {"none", "tanh"});
  if (!approximate) {
    return std::nullopt;
  }
  const bool is_tanh = *approximate == 1;
  return args.function([&](Element x) {
    if (!is_tanh) {
      return args.mul(x, args.normal_cdf(x));
    }
    const Element cube = args.mul(args.mul(x, x), x);
    const Element inner =
        args.times(args.add(x, args.times(cube, 0.044715)), std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
    return args.mul(args.times(x, 0.5), args.add(args.literal(1, x), args.b.apply(MachineOp::kTanh, inner)));
  });
}

// x · scale above 0, and (exp(x · input_scale) - 1) · below elsewhere
Element elu_of(RuleArguments& args, Element x, double below, double scale, double input_scale) {
  const Element soft = args.times(args.b.apply(MachineOp::kExpm1, args.times(x, input_scale)), below);
  return args.select(args.less(x, args.literal(0, x)), soft, args.times(x, scale));
}

// elu(self, alpha, scale, input_scale)
Result write_elu(RuleArguments& args) {
  if (!args.is_number(1) || !args.is_number(2) || !args.is_number(3)) {
    return std::nullopt;
  }
  return args.function(
      [&](Element x) { return elu_of(args, x, *args.number(1) * *args.number(2), *args.number(2), *args.number(3)); });
}

Result write_selu(RuleArguments& args) {
  constexpr double kAlpha = 1.6732632423543772848170429916717;
  constexpr double kScale = 1.0507009873554804934193349852946;
  return args.function([&](Element x) { return elu_of(args, x, kAlpha * kScale, kScale, 1); });
}

// celu(self, alpha)
Result write_celu(RuleArguments& args) {
  if (!args.is_number(1) || *args.number(1) == 0) {
    return std::nullopt;
  }
  return args.function([&](Element x) { return elu_of(args, x, *args.number(1), 1, 1 / *args.number(1)); });
}

// softplus(self, beta, threshold)
Result write_softplus(RuleArguments& args) {
  if (!args.is_number(1) || !args.is_number(2)) {
    return std::nullopt;
  }
  return args.function([&](Element x) {
    const Element beta = args.as(1, args.type(0));
    const Element scaled = args.mul(x, beta);
    const Element soft = args.div(args.b.apply(MachineOp::kLog1p, args.b.apply(MachineOp::kExp, scaled)), beta);
    return args.select(args.less(args.as(2, args.type(0)), scaled), x, soft);
  });
}

Result write_mish(RuleArguments& args) {
  return args.function([&](Element x) {
    const Element soft = args.b.apply(MachineOp::kLog1p, args.b.apply(MachineOp::kExp, x));
    return args.mul(x, args.b.apply(MachineOp::kTanh, soft));
  });
}

// hardshrink(self, lambd)
Result write_hardshrink(RuleArguments& args) {
  return args.is_number(1) ? args.function([&](Element x) {
    const Element bound = args.as(1, args.type(0));
    const Element is_above = args.b.apply(MachineOp::kLessEqual, args.b.apply(MachineOp::kNeg, bound), x);
    const Element is_below = args.b.apply(MachineOp::kLessEqual, x, bound);
    return args.select(args.b.apply(MachineOp::kAnd, is_above, is_below), args.literal(0, x), x);
  })
                           : std::nullopt;
}

// softshrink(self, lambd): LibTorch raises unless `lambd` is finite and not negative.
Result write_softshrink(RuleArguments& args) {
  args.b.set_may_differ();  // the sign of zero depends on the place of the element
  const bool accepts = args.is_number(1) && *args.number(1) >= 0 && std::isfinite(*args.number(1));
  return accepts ? args.function([&](Element x) {
    const Element bound = args.as(1, args.type(0));
    const Element inner = args.select(args.different(x, x), x, args.literal(0, x));
    const Element low = args.select(args.less(x, args.b.apply(MachineOp::kNeg, bound)), args.add(x, bound), inner);
    return args.select(args.less(bound, x), args.sub(x, bound), low);
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
