#include "tests/fusion/element_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace sconce::testing {
namespace {

std::vector<double> specials_of(at::ScalarType dtype) {
  if (dtype == at::kBool) {
    return {0, 1};
  }
  if (dtype == at::kByte) {
    return {0, 1, 2, 3, 127, 128, 200, 255};
  }
  if (!c10::isFloatingType(dtype)) {
    return {0, 1, -1, 2, -2, 3, -3, 5, -7, 20, 100, -100, 46341, 2147483647, -2147483648.0, 16777217};
  }
  const bool is_double = dtype == at::kDouble;
  const double largest = is_double             ? std::numeric_limits<double>::max()
                         : dtype == at::kFloat ? 3.4028234663852886e38
                                               : 3.38e38;
  const double smallest = is_double ? 5e-324 : dtype == at::kFloat ? 1.401298464324817e-45 : 9.2e-41;
  const double denormal = is_double ? 1e-310 : 1e-39;
  const double infinity = std::numeric_limits<double>::infinity();
  return {0.0,      -0.0, infinity, -infinity, std::nan(""), smallest, -smallest, denormal, -denormal, largest,
          -largest, 0.5,  -0.5,     1,         -1,           1.5,      -1.5,      2.5,      -2.5,      3,
          -3,       6,    20,       -20,       88.7,         -87.3,    89.5,      -103.9,   0.625,     1e-4};
}

template <typename T, typename Bits>
int64_t ordered(T value) {
  const auto bits = std::bit_cast<Bits>(value);
  return bits < 0 ? static_cast<int64_t>(std::numeric_limits<Bits>::min()) - bits : bits;
}

int64_t ordered_bits(const void* data, int64_t i, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return ordered<float, int32_t>(static_cast<const float*>(data)[i]);
    case at::kDouble: return ordered<double, int64_t>(static_cast<const double*>(data)[i]);
    default: return ordered<uint16_t, int16_t>(static_cast<const uint16_t*>(data)[i]);
  }
}

double epsilon_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? std::numeric_limits<double>::epsilon() : dtype == at::kFloat ? 0x1p-23 : 0x1p-7;
}

}  // namespace

at::Tensor special_values(int64_t count, at::ScalarType dtype, size_t operand, uint64_t seed) {
  const std::vector<double> specials = specials_of(dtype);
  std::mt19937_64 random(seed * 31 + operand);
  std::normal_distribution<double> normal;
  const auto n = static_cast<int64_t>(specials.size());
  at::Tensor values = at::empty({count}, at::kDouble);
  double* const data = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pick = operand == 0 ? i % n : operand == 1 ? (i / n) % n : (i * 7 + 3) % n;
    const bool is_special = count < n ? random() % 2 == 0 : i < n * n || random() % 8 == 0;
    const double scale = std::pow(10.0, static_cast<double>(random() % 7) - 4);
    data[i] = is_special ? specials[static_cast<size_t>(count < n ? static_cast<int64_t>(random() % specials.size()) : pick)]
                         : normal(random) * scale;
  }
  return dtype == at::kByte ? values.abs().clamp_max(255).to(dtype) : values.to(dtype);
}

double distance_between(const at::Tensor& a, const at::Tensor& b, const at::Tensor& first_operand, const Distance& allowed,
                        int64_t* where) {
  const double infinity = std::numeric_limits<double>::infinity();
  *where = -1;
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return infinity;
  }
  const at::ScalarType dtype = a.scalar_type();
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  double most = 0;
  const auto note = [&](double distance, int64_t i) {
    if (distance > most) {
      most = distance;
      *where = i;
    }
  };
  if (!c10::isFloatingType(dtype)) {
    const at::Tensor differs = x.ne(y).reshape({-1}).nonzero();
    if (differs.numel() != 0) {
      note(infinity, differs[0].item<int64_t>());
    }
    return most;
  }
  const at::Tensor wide_x = x.to(at::kDouble);
  const at::Tensor wide_y = y.to(at::kDouble);
  const double* const p = wide_x.const_data_ptr<double>();
  const double* const q = wide_y.const_data_ptr<double>();
  at::Tensor scale;
  if (allowed.of_operand) {
    scale = first_operand.expand(a.sizes()).to(at::kDouble).contiguous();
  }
  const double normal = dtype == at::kDouble ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (allowed.any_infinity && std::isinf(p[i]) && std::isinf(q[i])) {
      continue;
    }
    if (p[i] == 0 && q[i] == 0 && !allowed.any_zero && std::signbit(p[i]) != std::signbit(q[i])) {
      note(infinity, i);
      continue;
    }
    const bool are_tiny = allowed.ulps != 0 && std::abs(p[i]) < normal && std::abs(q[i]) < normal;
    if (are_tiny || (allowed.any_nan && std::isnan(p[i]) != std::isnan(q[i]))) {
      continue;
    }
    if (std::isnan(p[i]) || std::isnan(q[i])) {
      note(std::isnan(p[i]) != std::isnan(q[i]) ? infinity : 0, i);
      continue;
    }
    const int64_t first = ordered_bits(x.const_data_ptr(), i, dtype);
    const int64_t second = ordered_bits(y.const_data_ptr(), i, dtype);
    // The difference is computed in integers: a double does not hold all bits of a float64.
    double distance =
        static_cast<double>(static_cast<uint64_t>(std::max(first, second)) - static_cast<uint64_t>(std::min(first, second)));
    if (distance > 0 && allowed.of_operand) {
      const double ulp = std::abs(scale.const_data_ptr<double>()[i]) * epsilon_of(dtype);
      distance = std::min(distance, ulp > 0 ? std::abs(p[i] - q[i]) / ulp : distance);
    }
    note(distance, i);
  }
  return most;
}

}  // namespace sconce::testing
