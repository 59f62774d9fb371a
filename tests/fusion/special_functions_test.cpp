// The device functions of special_functions.inc, compiled for the CPU, beside LibTorch's.
#include "fusion/cuda/device_functions.h"
#include "fusion/program/scalar_functions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace on_device {

using std::acos;
using std::copysign;
using std::cos;
using std::erfc;
using std::exp;
using std::fabs;
using std::floor;
using std::lgamma;
using std::log;
using std::log1p;
using std::pow;
using std::sin;
using std::sinh;
using std::sqrt;
using std::tan;
using std::trunc;

// What CUDA's library has beside these.
template <typename T>
T cyl_bessel_i0(T x) {
  return static_cast<T>(std::cyl_bessel_i(0.0, std::fabs(static_cast<double>(x))));
}
template <typename T>
T cyl_bessel_i1(T x) {
  return std::copysign(static_cast<T>(std::cyl_bessel_i(1.0, std::fabs(static_cast<double>(x)))), x);
}
double erfcx(double x) {
  return reinterpret_cast<double (*)(double)>(scalar_functions()[scalar_function("erfcx")].of_double)(x);
}
float erfcx(float x) { return static_cast<float>(erfcx(static_cast<double>(x))); }
double infinite() { return std::numeric_limits<double>::infinity(); }
double not_a_number() { return std::numeric_limits<double>::quiet_NaN(); }

#define __device__
#define SCONCE_DEVICE_TEXT(...) __VA_ARGS__
#include "fusion/cuda/special_functions.inc"
#undef SCONCE_DEVICE_TEXT
#undef __device__

}  // namespace on_device

namespace {

using ::testing::HasSubstr;

template <typename T>
T theirs(const std::string& name, T x, T y) {
  const ScalarFunction& function = scalar_functions()[scalar_function(name)];
  void* const address = address_of(function, sizeof(T) == 4 ? c10::ScalarType::Float : c10::ScalarType::Double);
  return function.operands == 1 ? reinterpret_cast<T (*)(T)>(address)(x) : reinterpret_cast<T (*)(T, T)>(address)(x, y);
}

// How far results may lie apart: relative to them, and, where they come close to 0, to what they are made of.
struct Tolerance {
  double relative;
  double absolute;
};

template <typename T>
class SpecialFunctions : public ::testing::Test {
 protected:
  using Function = std::function<T(T, T)>;

  static std::vector<T> numbers() {
    std::vector<T> all = {T(0.0), T(-0.0), T(1), T(-1), T(0.5), T(-0.5), T(40), T(39.5), T(30), T(29.9), T(88), T(-88)};
    for (int i = -400; i <= 400; ++i) {
      all.push_back(T(i) / T(32));
      all.push_back(T(i) / T(7));
    }
    for (const double size : {1e-30, 1e-8, 1e-3, 100.0, 1e3, 1e6, 1e12}) {
      all.push_back(T(size));
      all.push_back(T(-size));
    }
    all.push_back(std::numeric_limits<T>::infinity());
    all.push_back(-std::numeric_limits<T>::infinity());
    all.push_back(std::numeric_limits<T>::quiet_NaN());
    return all;
  }

  // Returns whether the results are equal enough.
  static bool agree(T got, T expected, const Tolerance& tolerance) {
    return (std::isnan(got) && std::isnan(expected)) || got == expected || std::isinf(tolerance.absolute) ||
           std::fabs(got - expected) <= tolerance.relative * std::fabs(expected) + tolerance.absolute;
  }

  // Results may lie `units` of the last place apart, and `absolute` units of `scale`, 1 if it is not given: where a result
  // is close to 0, its terms count.
  void expect_agreement(const std::string& name, const std::vector<T>& first, const std::vector<T>& second,
                        const Function& ours, double units, double absolute = 0, const Function& scale = nullptr) {
    constexpr double kUnit = std::numeric_limits<T>::epsilon();
    for (const T x : first) {
      for (const T y : second) {
        const double of_terms = scale ? static_cast<double>(scale(x, y)) : 1;
        const Tolerance tolerance{units * kUnit, absolute * kUnit * of_terms + std::numeric_limits<T>::min()};
        const T expected = theirs(name, x, y);
        const T got = ours(x, y);
        ASSERT_PRED3(agree, got, expected, tolerance)
            << name << " of " << x << ", " << y << ": " << std::fabs(got - expected) / kUnit << " units";
      }
    }
  }

  // NaN has results of its own in LibTorch's polynomials.
  static std::vector<T> finite_numbers() {
    std::vector<T> all = numbers();
    std::erase_if(all, [](T x) { return !std::isfinite(x); });
    return all;
  }
};

std::ostream& operator<<(std::ostream& out, const Tolerance& tolerance) {
  return out << tolerance.relative << " of the result and " << tolerance.absolute;
}

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SpecialFunctions, Types);

TYPED_TEST(SpecialFunctions, OfOneOperand) {
  using T = TypeParam;
  const std::vector<T> none = {T(0)};
  const std::vector<T> all = this->numbers();
  const auto check = [&](const char* name, auto function, double units, double absolute = 0) {
    this->expect_agreement(name, all, none, [&](T x, T) { return function(x); }, units, absolute);
  };
  check("digamma", [](T x) { return on_device::digamma(x); }, 8, 8);
  check("trigamma", [](T x) { return on_device::trigamma(x); }, 8, 8);
  check("i0e", [](T x) { return on_device::i0e(x); }, 32);
  check("i1e", [](T x) { return on_device::i1e(x); }, 32);
  check("modified_bessel_k0", [](T x) { return on_device::modified_bessel_k<0>(x); }, 64);
  check("modified_bessel_k1", [](T x) { return on_device::modified_bessel_k<1>(x); }, 64);
  check("scaled_modified_bessel_k0", [](T x) { return on_device::scaled_modified_bessel_k<0>(x); }, 16);
  check("scaled_modified_bessel_k1", [](T x) { return on_device::scaled_modified_bessel_k<1>(x); }, 16);
  check("spherical_bessel_j0", [](T x) { return on_device::spherical_bessel_j0(x); }, 4);
  check("log_ndtr", [](T x) { return on_device::log_ndtr(x); }, 16);
}

TYPED_TEST(SpecialFunctions, ZetaAndPolygamma) {
  using T = TypeParam;
  const std::vector<T> all = this->numbers();
  // LibTorch computes these of float32 in float64 on CPUs. Below 0, large terms of either sign may cancel.
  const double units = sizeof(T) == 4 ? 256 : 64;
  const auto of_zeta = [](T x, T q) { return q < T(0) ? std::pow(std::fabs(q - std::round(q)), -x) + T(1) : T(1); };
  const auto of_polygamma = [&](T n, T x) { return std::tgamma(n + T(1)) * of_zeta(n + T(1), x); };
  this->expect_agreement(
      "zeta", {T(1), T(1.5), T(2), T(3), T(7), T(20.5), T(0.5), T(-2)}, all, [](T x, T q) { return on_device::zeta(x, q); },
      units, 8, of_zeta);
  this->expect_agreement(
      "polygamma", {T(2), T(3), T(4), T(9)}, all, [](T n, T x) { return on_device::polygamma(n, x); }, units, 8,
      of_polygamma);
}

TYPED_TEST(SpecialFunctions, Polynomials) {
  using T = TypeParam;
  const std::vector<T> degrees = {T(-1), T(0), T(1), T(2), T(3), T(5), T(7), T(8), T(9), T(12), T(20), T(30.5)};
  const std::vector<T> all = this->finite_numbers();
  const auto check = [&](const char* name, auto function, double units, double absolute) {
    this->expect_agreement(name, all, degrees, function, units, absolute);
  };
  check("chebyshev_polynomial_t", [](T x, T n) { return on_device::chebyshev<1>(x, n); }, 64, 256);
  check("chebyshev_polynomial_u", [](T x, T n) { return on_device::chebyshev<2>(x, n); }, 64, 512);
  check("chebyshev_polynomial_v", [](T x, T n) { return on_device::chebyshev<3>(x, n); }, 64, 512);
  check("chebyshev_polynomial_w", [](T x, T n) { return on_device::chebyshev<4>(x, n); }, 64, 512);
  check("shifted_chebyshev_polynomial_t", [](T x, T n) { return on_device::shifted_chebyshev<1>(x, n); }, 64, 256);
  check("shifted_chebyshev_polynomial_u", [](T x, T n) { return on_device::shifted_chebyshev<2>(x, n); }, 64, 512);
  check("shifted_chebyshev_polynomial_v", [](T x, T n) { return on_device::shifted_chebyshev<3>(x, n); }, 64, 512);
  check("shifted_chebyshev_polynomial_w", [](T x, T n) { return on_device::shifted_chebyshev<4>(x, n); }, 64, 512);
  // The sums of the absolute values of their terms.
  const auto of_hermite = [](T factor) {
    return [factor](T x, T n) {
      T before = 1;
      T now = factor * std::fabs(x);
      for (int64_t k = 1; k < static_cast<int64_t>(n); ++k) {
        before = std::exchange(now, factor * std::fabs(x) * now + factor * T(k) * before);
      }
      return now + T(1);
    };
  };
  const auto of_laguerre = [](T x, T n) { return on_device::laguerre(-std::fabs(x), n); };
  const auto check_terms = [&](const char* name, auto function, auto scale) {
    this->expect_agreement(name, all, degrees, function, 64, 64, scale);
  };
  check_terms("hermite_polynomial_h", [](T x, T n) { return on_device::hermite<2>(x, n); }, of_hermite(2));
  check_terms("hermite_polynomial_he", [](T x, T n) { return on_device::hermite<1>(x, n); }, of_hermite(1));
  check_terms("laguerre_polynomial_l", [](T x, T n) { return on_device::laguerre(x, n); }, of_laguerre);
  check("legendre_polynomial_p", [](T x, T n) { return on_device::legendre(x, n); }, 64, 64);
}

TYPED_TEST(SpecialFunctions, PolynomialsOfNoDegree) {
  using T = TypeParam;
  for (const T n :
       {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity()}) {
    EXPECT_EQ(on_device::chebyshev<1>(T(2), n), T(0));
    EXPECT_EQ(on_device::hermite<2>(T(2), n), T(0));
    EXPECT_EQ(on_device::legendre(T(2), n), T(0));
  }
  EXPECT_TRUE(std::isnan(on_device::hermite<2>(T(2), T(sizeof(T) == 4 ? 129 : 513))));
  EXPECT_FALSE(std::isnan(on_device::hermite<1>(T(2), T(3))));
}

TEST(SpecialFunctionTexts, AreOfAllButThree) {
  std::set<std::string> without;
  size_t special = 0;
  for (uint32_t i = 0; i < scalar_functions().size(); ++i) {
    const ScalarFunction& function = scalar_functions()[i];
    const auto type = function.of_float != nullptr ? at::kFloat : at::kInt;
    const Instruction call{
        .op = function.operands == 1 ? MachineOp::kCall : MachineOp::kCallOfTwo, .type = type, .index = i};
    if (const auto expression = device_expression(call, type, {"a", "b", ""}); !expression) {
      without.insert(std::string(function.name));
    } else {
      special += is_special_device_function(function.name) ? 1 : 0;
    }
  }
  EXPECT_EQ(without, (std::set<std::string>{"airy_ai", "igamma", "igammac"}));
  EXPECT_EQ(special, 24U);
  EXPECT_THAT(special_device_functions(), HasSubstr("template <typename T> __device__ inline T digamma(T x) {"));
}

}  // namespace
}  // namespace sconce::testing
