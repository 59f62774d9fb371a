#include "tests/fusion/kernel_interpreter.h"

#include "fusion/scalar_functions.h"

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace sconce::testing {
namespace {

using Type = c10::ScalarType;

constexpr double kMostUlps = 4;  // of functions of the mathematical library

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

double rounded_to(Type type, double value) {
  switch (type) {
    case Type::Float: return static_cast<float>(value);
    case Type::BFloat16: return static_cast<float>(c10::BFloat16(static_cast<float>(value)));
    default: return value;
  }
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

bool is_inexact(MachineOp op) {
  const bool is_rounded_fold = op == MachineOp::kSum || op == MachineOp::kProduct;
  return is_rounded_fold || (is_library_function(op) && !is_call(op));
}

bool is_inexact(const KernelProgram& program) {
  return std::any_of(program.code.begin(), program.code.end(), [](const Instruction& each) { return is_inexact(each.op); });
}

const char* KernelInterpreter::address(size_t operand, int64_t element) const {
  return static_cast<const char*>(frame_->operands[operand]) + row_ * frame_->row_steps[operand] +
         element % frame_->elements * frame_->element_steps[operand] +
         element / frame_->elements * frame_->segment_steps[operand];
}

KernelInterpreter::KernelInterpreter(const KernelProgram& program, bool fuses) : program_(program), fuses_(fuses) {
  for (const Instruction& each : program.code) {
    const std::array<uint32_t, 3> operands = {each.a, each.b, each.c};
    is_affected_.push_back(std::any_of(operands.begin(), operands.begin() + operand_count(each.op), [&](uint32_t operand) {
      return is_affected_[operand] || is_inexact(program.code[operand].op);
    }));
  }
}

// Returns the value, moved by so many ulps of 1.
double KernelInterpreter::perturbed(Type type, double value, double error) const {
  if (!direction_ || !std::isfinite(value)) {
    return value;
  }
  const double ulp = type == Type::Double ? 0x1p-52 : 0x1p-23;
  return rounded_to(type, value + direction_() * error * ulp);
}

KernelInterpreter::Scalar KernelInterpreter::compute(const Instruction& each, const Values& values, int64_t element) const {
  const auto operand = [&](uint32_t id) { return values[id]; };
  const auto type_of = [&](uint32_t id) { return program_.code[id].type; };
  const bool is_real = c10::isFloatingType(each.type);
  switch (each.op) {
    case MachineOp::kLoad: {
      const char* const at = address(each.index, element);
      switch (each.type) {
        case Type::Float: return {.real = from_memory<float>(at)};
        case Type::Double: return {.real = from_memory<double>(at)};
        case Type::BFloat16: return {.real = static_cast<float>(from_memory<c10::BFloat16>(at))};
        case Type::Long: return {.whole = from_memory<int64_t>(at)};
        case Type::Int: return {.whole = from_memory<int32_t>(at)};
        case Type::Byte: return {.whole = from_memory<uint8_t>(at)};
        default: return {.whole = from_memory<uint8_t>(at) != 0 ? 1 : 0};
      }
    }
    case MachineOp::kNumber: {
      const auto* const at = reinterpret_cast<const char*>(&frame_->numbers[each.index]);
      return is_real ? Scalar{.real = rounded_to(each.type, from_memory<double>(at))}
                     : Scalar{.whole = from_memory<int64_t>(at)};
    }
    case MachineOp::kLiteral: return {.real = each.literal, .whole = each.integer};
    case MachineOp::kRowLength:
      return {.real = rounded_to(each.type, static_cast<double>(frame_->elements * frame_->segments))};
    case MachineOp::kConvert: {
      const bool was_real = c10::isFloatingType(type_of(each.a));
      const Scalar a = operand(each.a);
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
                                                 : saturated<int8_t>(a.real)};
    }
    case MachineOp::kSelect: return operand(each.a).whole != 0 ? operand(each.b) : operand(each.c);
    case MachineOp::kEqual:
    case MachineOp::kNotEqual:
    case MachineOp::kLess:
    case MachineOp::kLessEqual:
    case MachineOp::kGreater:
    case MachineOp::kGreaterEqual:
      return {.whole = c10::isFloatingType(type_of(each.a))
                           ? compares(each.op, operand(each.a).real, operand(each.b).real)
                           : compares(each.op, operand(each.a).whole, operand(each.b).whole)};
    default: break;
  }
  const size_t count = operand_count(each.op);
  const Scalar a = operand(each.a);
  const Scalar b = count > 1 ? operand(each.b) : Scalar();
  const Scalar c = count > 2 ? operand(each.c) : Scalar();
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
    const double value = rounded_to(each.type, library(each.op, a.real, b.real));
    return {.real = perturbed(each.type, value, kMostUlps * (each.op == MachineOp::kNormalCdf ? 1 : std::fabs(value)))};
  }
  const double value = each.type == Type::Double ? exact(each.op, a.real, b.real, c.real, fuses_)
                                                 : exact(each.op, static_cast<float>(a.real), static_cast<float>(b.real),
                                                         static_cast<float>(c.real), fuses_);
  const bool is_rounded = each.op <= MachineOp::kFma || each.op == MachineOp::kSqrt;
  const bool is_affected = is_affected_[static_cast<size_t>(&each - program_.code.data())];
  return {.real = is_rounded && is_affected ? perturbed(each.type, value, std::fabs(value)) : value};
}

KernelInterpreter::Scalar KernelInterpreter::folded(const Instruction& fold, const std::vector<Values>& row) const {
  double result = row[0][fold.a].real;
  double scale = std::fabs(result);
  for (size_t i = 1; i < row.size(); ++i) {
    const double value = row[i][fold.a].real;
    scale += std::fabs(value);
    switch (fold.op) {
      case MachineOp::kSum: result += value; break;
      case MachineOp::kProduct: result *= value; break;
      case MachineOp::kLargest: result = exact(MachineOp::kMax, result, value, 0.0, fuses_); break;
      default: result = exact(MachineOp::kMin, result, value, 0.0, fuses_); break;
    }
  }
  result = rounded_to(fold.type, result);
  if (!is_inexact(fold.op)) {
    return {.real = result};
  }
  const double size = fold.op == MachineOp::kSum ? scale : std::fabs(result) * static_cast<double>(row.size());
  return {.real = perturbed(fold.type, result, kMostUlps * size)};
}

// Computes one instruction after the other for the whole row: a fold needs its operand for all elements.
void KernelInterpreter::run(const KernelCallFrame& frame) {
  frame_ = &frame;
  for (row_ = 0; row_ < frame.rows; ++row_) {
    std::vector<Values> row(static_cast<size_t>(frame.elements * frame.segments), Values(program_.code.size()));
    for (size_t i = 0; i < program_.code.size(); ++i) {
      const Instruction& each = program_.code[i];
      const Scalar whole_row = is_fold(each.op) ? folded(each, row) : Scalar();
      for (size_t element = 0; element < row.size(); ++element) {
        row[element][i] = is_fold(each.op) ? whole_row : compute(each, row[element], static_cast<int64_t>(element));
      }
    }
    for (size_t k = 0; k < program_.outputs.size(); ++k) {
      const KernelOutput& output = program_.outputs[k];
      const bool is_of_row = output.access == Access::kOne;
      for (size_t element = 0; element < (is_of_row ? 1 : row.size()); ++element) {
        const Scalar& value = row[element][output.value];
        char* const at = const_cast<char*>(address(program_.inputs.size() + k, static_cast<int64_t>(element)));
        switch (output.type) {
          case Type::Float: to_memory(at, static_cast<float>(value.real)); break;
          case Type::Double: to_memory(at, value.real); break;
          case Type::BFloat16: to_memory(at, c10::BFloat16(static_cast<float>(value.real))); break;
          case Type::Long: to_memory(at, value.whole); break;
          case Type::Int: to_memory(at, static_cast<int32_t>(value.whole)); break;
          default: to_memory(at, static_cast<uint8_t>(value.whole)); break;
        }
      }
    }
  }
}

}  // namespace sconce::testing
