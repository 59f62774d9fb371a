// Special functions: each lane calls LibTorch's own function of one element.
#include "fusion/program/rules/rule.h"

#include <numbers>
#include <string>

namespace sconce {
namespace {

// Whether kernels compute results of bfloat16 and float16: LibTorch raises there, or rounds in between.
enum class Reduced : uint8_t { kComputed, kLeft };
// Whether integers are converted to the default dtype, or LibTorch raises.
enum class Integers : uint8_t { kConverted, kRaise };

void add_special(RuleTable& table, const std::string& name, const std::string& function, Reduced reduced) {
  add_rule(table, name.c_str(), [function, reduced](RuleArguments& args) -> Result {
    if (reduced == Reduced::kLeft && c10::isReducedFloatingType(args.type(0))) {
      return std::nullopt;
    }
    return args.real_function([&](Element x) { return args.b.call(function, x); });
  });
}

// Of two operands, promoted to a floating dtype.
Result write_special_of_two(RuleArguments& args, const std::string& function, Reduced reduced, Integers integers) {
  const Type dtype = integers == Integers::kRaise ? args.promoted_floating({0, 1}) : args.promoted_to_floating({0, 1});
  if (!dtype || (reduced == Reduced::kLeft && c10::isReducedFloatingType(*dtype))) {
    return std::nullopt;
  }
  return args.done(args.b.call(function, args.rounded(0, *dtype), args.rounded(1, *dtype)), *dtype);
}

void add_special_of_two(RuleTable& table, const std::string& name, const std::string& function, Reduced reduced,
                        Integers integers, std::initializer_list<const char*> overloads = {""}) {
  add_rule(
      table, name.c_str(), [=](RuleArguments& args) { return write_special_of_two(args, function, reduced, integers); },
      overloads);
}

// polygamma(n, self)
Result write_polygamma(RuleArguments& args) {
  if (!args.is_number(0) || *args.number(0) < 0) {
    return std::nullopt;
  }
  return args.real_function(
      [&](Element x) {
        return *args.number(0) == 0   ? args.b.call("digamma", x)
               : *args.number(0) == 1 ? args.b.call("trigamma", x)
                                      : args.b.call("polygamma", args.literal(*args.number(0), x), x);
      },
      /*argument=*/1);
}

// sinc(self): sin(pi * self) / (pi * self), and 1 at 0
Result write_sinc(RuleArguments& args) {
  return args.real_function([&](Element x) {
    const Element product = args.times(x, std::numbers::pi);
    const Element quotient = args.div(args.b.apply(MachineOp::kSin, product), product);
    return args.select(args.equal(x, args.literal(0, x)), args.literal(1, x), quotient);
  });
}

// special_entr(self): -self * log(self), 0 at 0, and minus infinity below
Result write_entr(RuleArguments& args) {
  return args.real_function([&](Element x) {
    const Element zero = args.literal(0, x);
    const Element inside = args.mul(args.b.apply(MachineOp::kNeg, x), args.b.apply(MachineOp::kLog, x));
    const Element below = args.literal(-std::numeric_limits<double>::infinity(), x);
    const Element of_number = args.select(args.less(zero, x), inside, args.select(args.equal(x, zero), zero, below));
    return args.select(args.different(x, x), x, of_number);
  });
}

// special_ndtr(self): (1 + erf(self * sqrt(1/2))) / 2. LibTorch composes it of operators, each of which rounds to the dtype.
Result write_ndtr(RuleArguments& args) {
  const bool rounds = c10::isReducedFloatingType(args.type(0));
  const auto rounded = [&](Element x) { return rounds ? args.b.convert(args.b.convert(x, args.type(0)), x.type) : x; };
  return args.real_function([&](Element x) {
    const Element erf = rounded(args.b.apply(MachineOp::kErf, rounded(args.times(x, std::numbers::sqrt2 / 2))));
    return args.times(rounded(args.add(erf, args.literal(1, erf))), 0.5);
  });
}

// gcd, lcm: of integers
Result write_divisor(RuleArguments& args, const std::string& function) {
  const Type dtype = args.promoted({0, 1});
  if (!dtype || !c10::isIntegralType(*dtype, /*includeBool=*/false)) {
    return std::nullopt;
  }
  const c10::ScalarType type = *dtype == at::kByte ? at::kInt : *dtype;
  const auto operand = [&](size_t i) { return args.b.convert(args.as(i, *dtype), type); };
  return args.done(args.b.call(function, operand(0), operand(1)), *dtype);
}

}  // namespace

void add_special_rules(RuleTable& table) {
  for (const char* name : {"digamma", "erfinv", "i0", "acosh", "asinh"}) {
    add_special(table, name, name, Reduced::kComputed);
  }
  for (const char* name :
       {"i0e", "i1", "i1e", "ndtri", "log_ndtr", "erfcx", "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1",
        "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
        "scaled_modified_bessel_k1", "spherical_bessel_j0"}) {
    add_special(table, std::string("special_") + name, name, Reduced::kLeft);
  }
  for (const char* name :
       {"chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
        "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
        "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w"}) {
    add_special_of_two(table, std::string("special_") + name, name, Reduced::kLeft, Integers::kConverted,
                       {"", "x_scalar", "n_scalar"});
  }
  add_special_of_two(table, "special_zeta", "zeta", Reduced::kLeft, Integers::kConverted,
                     {"", "self_scalar", "other_scalar"});
  add_special_of_two(table, "igamma", "igamma", Reduced::kComputed, Integers::kRaise);
  add_special_of_two(table, "igammac", "igammac", Reduced::kComputed, Integers::kRaise);
  add_special_of_two(table, "nextafter", "nextafter", Reduced::kLeft, Integers::kRaise);
  add_rule(table, "polygamma", write_polygamma);
  add_rule(table, "sinc", write_sinc);
  add_rule(table, "special_entr", write_entr);
  add_rule(table, "special_ndtr", write_ndtr);
  for (const char* name : {"gcd", "lcm"}) {
    add_rule(table, name, [function = std::string(name)](RuleArguments& args) { return write_divisor(args, function); });
  }
}

}  // namespace sconce
