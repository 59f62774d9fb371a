// Compiled for AVX2 and with fused products and sums, as LibTorch compiles its kernels. Only kernels call these functions.
// What this file uses of headers must be used nowhere else, because the linker keeps one copy of it.
#include "fusion/program/scalar_functions.h"

#include <ATen/native/Math.h>

#include <cmath>

namespace sconce {
namespace {

// `Function` has no state.
template <typename Function>
ScalarFunction of_one(std::string_view name, Function) {
  return {name, 1, reinterpret_cast<void*>(+[](float x) -> float { return Function()(x); }),
          reinterpret_cast<void*>(+[](double x) -> double { return Function()(x); })};
}

template <typename Function>
ScalarFunction of_two(std::string_view name, Function) {
  return {name, 2, reinterpret_cast<void*>(+[](float x, float y) -> float { return Function()(x, y); }),
          reinterpret_cast<void*>(+[](double x, double y) -> double { return Function()(x, y); })};
}

template <typename Function>
ScalarFunction of_two_integers(std::string_view name, Function) {
  return {.name = name,
          .operands = 2,
          .of_int = reinterpret_cast<void*>(+[](int32_t x, int32_t y) -> int32_t { return Function()(x, y); }),
          .of_long = reinterpret_cast<void*>(+[](int64_t x, int64_t y) -> int64_t { return Function()(x, y); })};
}

}  // namespace

std::span<const ScalarFunction> scalar_functions() {
  static const ScalarFunction functions[] = {
      of_one("digamma", [](auto x) { return calc_digamma(x); }),
      of_one("trigamma", [](auto x) { return trigamma(x); }),
      of_one("acosh", [](auto x) { return std::acosh(x); }),
      of_one("asinh", [](auto x) { return std::asinh(x); }),
      of_one("erfinv", [](auto x) { return calc_erfinv(x); }),
      of_one("erfcx", [](auto x) { return calc_erfcx(x); }),
      of_one("i0", [](auto x) { return calc_i0(x); }),
      of_one("i0e", [](auto x) { return calc_i0e(x); }),
      of_one("i1", [](auto x) { return calc_i1(x); }),
      of_one("i1e", [](auto x) { return calc_i1e(x); }),
      of_one("ndtri", [](auto x) { return calc_ndtri(x); }),
      of_one("log_ndtr", [](auto x) { return calc_log_ndtr(x); }),
      of_one("airy_ai", [](auto x) { return airy_ai_forward(x); }),
      of_one("bessel_j0", [](auto x) { return bessel_j0_forward(x); }),
      of_one("bessel_j1", [](auto x) { return bessel_j1_forward(x); }),
      of_one("bessel_y0", [](auto x) { return bessel_y0_forward(x); }),
      of_one("bessel_y1", [](auto x) { return bessel_y1_forward(x); }),
      of_one("modified_bessel_i0", [](auto x) { return modified_bessel_i0_forward(x); }),
      of_one("modified_bessel_i1", [](auto x) { return modified_bessel_i1_forward(x); }),
      of_one("modified_bessel_k0", [](auto x) { return modified_bessel_k0_forward(x); }),
      of_one("modified_bessel_k1", [](auto x) { return modified_bessel_k1_forward(x); }),
      of_one("scaled_modified_bessel_k0", [](auto x) { return scaled_modified_bessel_k0_forward(x); }),
      of_one("scaled_modified_bessel_k1", [](auto x) { return scaled_modified_bessel_k1_forward(x); }),
      of_one("spherical_bessel_j0", [](auto x) { return spherical_bessel_j0_forward(x); }),
      of_two("igamma", [](auto a, auto x) { return calc_igamma(a, x); }),
      of_two("igammac", [](auto a, auto x) { return calc_igammac(a, x); }),
      of_two("zeta", [](auto x, auto q) { return zeta<decltype(x)>(x, q); }),
      of_two("polygamma", [](auto n, auto x) { return calc_polygamma(x, static_cast<int>(n)); }),
      of_two("nextafter", [](auto x, auto y) { return std::nextafter(x, y); }),
      of_two("chebyshev_polynomial_t", [](auto x, auto n) { return chebyshev_polynomial_t_forward(x, n); }),
      of_two("chebyshev_polynomial_u", [](auto x, auto n) { return chebyshev_polynomial_u_forward(x, n); }),
      of_two("chebyshev_polynomial_v", [](auto x, auto n) { return chebyshev_polynomial_v_forward(x, n); }),
      of_two("chebyshev_polynomial_w", [](auto x, auto n) { return chebyshev_polynomial_w_forward(x, n); }),
      of_two("hermite_polynomial_h", [](auto x, auto n) { return hermite_polynomial_h_forward(x, n); }),
      of_two("hermite_polynomial_he", [](auto x, auto n) { return hermite_polynomial_he_forward(x, n); }),
      of_two("laguerre_polynomial_l", [](auto x, auto n) { return laguerre_polynomial_l_forward(x, n); }),
      of_two("legendre_polynomial_p", [](auto x, auto n) { return legendre_polynomial_p_forward(x, n); }),
      of_two("shifted_chebyshev_polynomial_t", [](auto x, auto n) { return shifted_chebyshev_polynomial_t_forward(x, n); }),
      of_two("shifted_chebyshev_polynomial_u", [](auto x, auto n) { return shifted_chebyshev_polynomial_u_forward(x, n); }),
      of_two("shifted_chebyshev_polynomial_v", [](auto x, auto n) { return shifted_chebyshev_polynomial_v_forward(x, n); }),
      of_two("shifted_chebyshev_polynomial_w", [](auto x, auto n) { return shifted_chebyshev_polynomial_w_forward(x, n); }),
      of_two_integers("gcd", [](auto a, auto b) { return calc_gcd(a, b); }),
      of_two_integers("lcm",
                      [](auto a, auto b) {
                        using Bits = std::make_unsigned_t<decltype(a)>;  // products wrap
                        const auto divisor = calc_gcd(a, b);
                        const Bits quotient = divisor == 0    ? Bits(0)
                                              : divisor == -1 ? Bits(0) - static_cast<Bits>(a)
                                                              : static_cast<Bits>(a / divisor);
                        const auto product = static_cast<decltype(a)>(quotient * static_cast<Bits>(b));
                        return product < 0 ? static_cast<decltype(a)>(Bits(0) - static_cast<Bits>(product)) : product;
                      }),
  };
  return functions;
}

}  // namespace sconce
