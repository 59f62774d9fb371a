#include "tests/support/scalars.h"

#include "fusion/program/scalar_functions.h"

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace sconce::testing {
namespace {

using Type = c10::ScalarType;

template <typename T>
T from_memory(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void to_memory(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

int64_t wrapped_to(Type type, uint64_t bits) {
  switch (type) {
    case Type::Int: return static_cast<int32_t>(static_cast<uint32_t>(bits));
    case Type::Byte: return static_cast<uint8_t>(bits);
    case Type::Bool: return static_cast<int64_t>(bits & 1);
    default: return static_cast<int64_t>(bits);
  }
}

// Returns the nearest integer towards zero that the type has; 0 for NaN.
template <typename T>
int64_t saturated(double value) {
  const double low = static_cast<double>(std::numeric_limits<T>::min());
  const double high = static_cast<double>(std::numeric_limits<T>::max());
  return std::isnan(value) ? 0
         : value <= low    ? static_cast<int64_t>(std::numeric_limits<T>::min())
         : value >= high   ? static_cast<int64_t>(std::numeric_limits<T>::max())
                           : static_cast<int64_t>(value);
}

// Operations of float32 and float64 that are rounded once.
template <typename T>
T exact(MachineOp op, T a, T b, T c, bool fuses) {
  switch (op) {
    case MachineOp::kAdd: return a + b;
    case MachineOp::kSub: return a - b;
    case MachineOp::kMul: return a * b;
    case MachineOp::kDiv: return a / b;
    case MachineOp::kFma: {
      volatile T product = a * b;  // the C++ compiler may fuse a product and a sum
      return fuses ? std::fma(a, b, c) : product + c;
    }
    case MachineOp::kNeg: return -a;
    case MachineOp::kAbs: return std::fabs(a);
    case MachineOp::kSqrt: return std::sqrt(a);
    case MachineOp::kFloor: return std::floor(a);
    case MachineOp::kCeil: return std::ceil(a);
    case MachineOp::kTrunc: return std::trunc(a);
    case MachineOp::kRound: return std::nearbyint(a);
    case MachineOp::kCopysign: return std::copysign(a, b);
    case MachineOp::kMin: return a < b || std::isnan(a) ? a : b;
    case MachineOp::kMax: return a > b || std::isnan(a) ? a : b;
    default: ADD_FAILURE() << name_of(op) << " of floating numbers"; return 0;
  }
}

// Functions of the mathematical library, of float64; those of float32 are rounded afterwards.
double library(MachineOp op, double a, double b) {
  switch (op) {
    case MachineOp::kExp: return std::exp(a);
    case MachineOp::kExp2: return std::exp2(a);
    case MachineOp::kExpm1: return std::expm1(a);
    case MachineOp::kLog: return std::log(a);
    case MachineOp::kLog1p: return std::log1p(a);
    case MachineOp::kLog2: return std::log2(a);
    case MachineOp::kLog10: return std::log10(a);
    case MachineOp::kTanh: return std::tanh(a);
    case MachineOp::kErf: return std::erf(a);
    case MachineOp::kErfc: return std::erfc(a);
    case MachineOp::kSin: return std::sin(a);
    case MachineOp::kCos: return std::cos(a);
    case MachineOp::kTan: return std::tan(a);
    case MachineOp::kAsin: return std::asin(a);
    case MachineOp::kAcos: return std::acos(a);
    case MachineOp::kAtan: return std::atan(a);
    case MachineOp::kSinh: return std::sinh(a);
    case MachineOp::kCosh: return std::cosh(a);
    case MachineOp::kAtanh: return std::atanh(a);
    case MachineOp::kAtan2: return std::atan2(a, b);
    case MachineOp::kFmod: return std::fmod(a, b);
    case MachineOp::kPow: return std::pow(a, b);
    case MachineOp::kLgamma: return std::lgamma(a);
    case MachineOp::kHypot: return std::hypot(a, b);
    case MachineOp::kSigmoid: return 1 / (1 + std::exp(-a));
    case MachineOp::kNormalCdf: return std::erfc(-a / std::sqrt(2.0)) / 2;
    default: ADD_FAILURE() << name_of(op) << " is no library function"; return 0;
  }
}

int64_t whole(MachineOp op, Type type, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a);
  const auto y = static_cast<uint64_t>(b);
  const auto bits = static_cast<uint64_t>(8 * c10::elementSize(type));
  switch (op) {
    case MachineOp::kAdd: return wrapped_to(type, x + y);
    case MachineOp::kSub: return wrapped_to(type, x - y);
    case MachineOp::kMul: return wrapped_to(type, x * y);
    case MachineOp::kDiv: return a / b;
    case MachineOp::kRemainder: return a % b;
    case MachineOp::kNeg: return wrapped_to(type, 0 - x);
    case MachineOp::kAbs: return wrapped_to(type, a < 0 ? 0 - x : x);
    case MachineOp::kMin: return std::min(a, b);
    case MachineOp::kMax: return std::max(a, b);
    case MachineOp::kAnd: return a & b;
    case MachineOp::kOr: return a | b;
    case MachineOp::kXor: return a ^ b;
    case MachineOp::kNot: return wrapped_to(type, ~x);
    // Beyond the type's bits the result is undefined, and programs do not select it.
    case MachineOp::kShiftLeft: return y < bits ? wrapped_to(type, x << y) : 0;
    case MachineOp::kShiftRight: return y < bits ? a >> b : 0;
    default: ADD_FAILURE() << name_of(op) << " of integers"; return 0;
  }
}

template <typename T>
bool compares(MachineOp op, T a, T b) {
  switch (op) {
    case MachineOp::kEqual: return a == b;
    case MachineOp::kNotEqual: return a != b;
    case MachineOp::kLess: return a < b;
    case MachineOp::kLessEqual: return a <= b;
    case MachineOp::kGreater: return a > b;
    default: return a >= b;
  }
}

template <typename T>
T called(const Instruction& each, T a, T b) {
  void* const function = address_of(scalar_functions()[each.index], each.type);
  return each.op == MachineOp::kCall ? reinterpret_cast<T (*)(T)>(function)(a)
                                     : reinterpret_cast<T (*)(T, T)>(function)(a, b);
}

}  // namespace

double rounded_to(Type type, double value) {
  switch (type) {
    case Type::Float: return static_cast<float>(value);
    case Type::BFloat16: return static_cast<float>(c10::BFloat16(static_cast<float>(value)));
    case Type::Half: return static_cast<float>(c10::Half(static_cast<float>(value)));
    default: return value;
  }
}

Scalar scalar_from_memory(Type type, const char* at) {
  switch (type) {
    case Type::Float: return {.real = from_memory<float>(at)};
    case Type::Double: return {.real = from_memory<double>(at)};
    case Type::BFloat16: return {.real = static_cast<float>(from_memory<c10::BFloat16>(at))};
    case Type::Half: return {.real = static_cast<float>(from_memory<c10::Half>(at))};
    case Type::Long: return {.whole = from_memory<int64_t>(at)};
    case Type::Int: return {.whole = from_memory<int32_t>(at)};
    case Type::Byte: return {.whole = from_memory<uint8_t>(at)};
    default: return {.whole = from_memory<uint8_t>(at) != 0 ? 1 : 0};
  }
}

void scalar_to_memory(Type type, char* at, Scalar value) {
  switch (type) {
    case Type::Float: to_memory(at, static_cast<float>(value.real)); break;
    case Type::Double: to_memory(at, value.real); break;
    case Type::BFloat16: to_memory(at, c10::BFloat16(static_cast<float>(value.real))); break;
    case Type::Half: to_memory(at, c10::Half(static_cast<float>(value.real))); break;
    case Type::Long: to_memory(at, value.whole); break;
    case Type::Int: to_memory(at, static_cast<int32_t>(value.whole)); break;
    default: to_memory(at, static_cast<uint8_t>(value.whole)); break;
  }
}

Scalar scalar_of_number(Type type, int64_t number) {
  const auto* const at = reinterpret_cast<const char*>(&number);
  return c10::isFloatingType(type) ? Scalar{.real = rounded_to(type, from_memory<double>(at))} : Scalar{.whole = number};
}

Scalar compute_scalar(const Instruction& each, Type operand, Scalar a, Scalar b, Scalar c, bool fuses) {
  const bool is_real = c10::isFloatingType(each.type);
  const bool was_real = c10::isFloatingType(operand);
  switch (each.op) {
    case MachineOp::kLiteral: return {.real = each.literal, .whole = each.integer};
    case MachineOp::kConvert: {
      if (each.type == Type::Bool) {
        return {.whole = (was_real ? a.real != 0 : a.whole != 0) ? 1 : 0};
      }
      if (is_real) {
        const double rounded = each.type == Type::Double ? static_cast<double>(a.whole) : static_cast<float>(a.whole);
        return {.real = rounded_to(each.type, was_real ? a.real : rounded)};
      }
      return {.whole = !was_real                 ? wrapped_to(each.type, static_cast<uint64_t>(a.whole))
                       : each.type == Type::Long ? saturated<int64_t>(a.real)
                       : each.type == Type::Int  ? saturated<int32_t>(a.real)
                                                 : wrapped_to(each.type, static_cast<uint64_t>(saturated<int8_t>(a.real)))};
    }
    case MachineOp::kSelect: return a.whole != 0 ? b : c;
    case MachineOp::kEqual:
    case MachineOp::kNotEqual:
    case MachineOp::kLess:
    case MachineOp::kLessEqual:
    case MachineOp::kGreater:
    case MachineOp::kGreaterEqual:
      return {.whole = was_real ? compares(each.op, a.real, b.real) : compares(each.op, a.whole, b.whole)};
    default: break;
  }
  if (is_call(each.op)) {
    switch (each.type) {
      case Type::Float: return {.real = called(each, static_cast<float>(a.real), static_cast<float>(b.real))};
      case Type::Double: return {.real = called(each, a.real, b.real)};
      case Type::Int: return {.whole = called(each, static_cast<int32_t>(a.whole), static_cast<int32_t>(b.whole))};
      default: return {.whole = called(each, a.whole, b.whole)};
    }
  }
  if (!is_real) {
    return {.whole = whole(each.op, each.type, a.whole, b.whole)};
  }
  if (is_library_function(each.op)) {
    return {.real = rounded_to(each.type, library(each.op, a.real, b.real))};
  }
  return {.real = each.type == Type::Double ? exact(each.op, a.real, b.real, c.real, fuses)
                                            : exact(each.op, static_cast<float>(a.real), static_cast<float>(b.real),
                                                    static_cast<float>(c.real), fuses)};
}

}  // namespace sconce::testing
