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
  add_rule(table, name.c_str(), [function, reduced](Writing& w) -> Result {
    if (reduced == Reduced::kLeft && c10::isReducedFloatingType(w.type(0))) {
      return std::nullopt;
    }
    return w.real_function([&](Element x) { return w.b.call(function, x); });
  });
}

// Of two operands, promoted to a floating dtype.
Result write_special_of_two(Writing& w, const std::string& function, Reduced reduced, Integers integers) {
  const Type dtype = integers == Integers::kRaise ? w.promoted_floating({0, 1}) : w.promoted_to_floating({0, 1});
  if (!dtype || (reduced == Reduced::kLeft && c10::isReducedFloatingType(*dtype))) {
    return std::nullopt;
  }
  return w.done(w.b.call(function, w.rounded(0, *dtype), w.rounded(1, *dtype)), *dtype);
}

void add_special_of_two(RuleTable& table, const std::string& name, const std::string& function, Reduced reduced,
                        Integers integers, std::initializer_list<const char*> overloads = {""}) {
  add_rule(table, name.c_str(), [=](Writing& w) { return write_special_of_two(w, function, reduced, integers); }, overloads);
}

// polygamma(n, self)
Result write_polygamma(Writing& w) {
  if (!w.is_number(0) || *w.number(0) < 0) {
    return std::nullopt;
  }
  return w.real_function(
      [&](Element x) {
        return *w.number(0) == 0   ? w.b.call("digamma", x)
               : *w.number(0) == 1 ? w.b.call("trigamma", x)
                                   : w.b.call("polygamma", w.literal(*w.number(0), x), x);
      },
      /*argument=*/1);
}

// sinc(self): sin(pi * self) / (pi * self), and 1 at 0
Result write_sinc(Writing& w) {
  return w.real_function([&](Element x) {
    const Element product = w.times(x, std::numbers::pi);
    const Element quotient = w.div(w.b.apply(MachineOp::kSin, product), product);
    return w.select(w.equal(x, w.literal(0, x)), w.literal(1, x), quotient);
  });
}

// special_entr(self): -self * log(self), 0 at 0, and minus infinity below
Result write_entr(Writing& w) {
  return w.real_function([&](Element x) {
    const Element zero = w.literal(0, x);
    const Element inside = w.mul(w.b.apply(MachineOp::kNeg, x), w.b.apply(MachineOp::kLog, x));
    const Element below = w.literal(-std::numeric_limits<double>::infinity(), x);
    const Element of_number = w.select(w.less(zero, x), inside, w.select(w.equal(x, zero), zero, below));
    return w.select(w.different(x, x), x, of_number);
  });
}

// special_ndtr(self): (1 + erf(self * sqrt(1/2))) / 2. LibTorch composes it of operators, each of which rounds to the dtype.
Result write_ndtr(Writing& w) {
  const bool rounds = c10::isReducedFloatingType(w.type(0));
  const auto rounded = [&](Element x) { return rounds ? w.b.convert(w.b.convert(x, w.type(0)), x.type) : x; };
  return w.real_function([&](Element x) {
    const Element erf = rounded(w.b.apply(MachineOp::kErf, rounded(w.times(x, std::numbers::sqrt2 / 2))));
    return w.times(rounded(w.add(erf, w.literal(1, erf))), 0.5);
  });
}

// gcd, lcm: of integers
Result write_divisor(Writing& w, const std::string& function) {
  const Type dtype = w.promoted({0, 1});
  if (!dtype || !c10::isIntegralType(*dtype, /*includeBool=*/false)) {
    return std::nullopt;
  }
  const c10::ScalarType type = *dtype == at::kByte ? at::kInt : *dtype;
  const auto operand = [&](size_t i) { return w.b.convert(w.as(i, *dtype), type); };
  return w.done(w.b.call(function, operand(0), operand(1)), *dtype);
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
    add_rule(table, name, [function = std::string(name)](Writing& w) { return write_divisor(w, function); });
  }
}

}  // namespace sconce
