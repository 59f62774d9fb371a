#include "fusion/cuda/device_functions.h"

#include "base/assert.h"
#include "fusion/program/scalar_functions.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

namespace sconce {
namespace {

// Conversions round as at::Tensor::to does on the CPU: to an integer towards zero, NaN to 0, what is too large to the
// largest.
constexpr const char* kPrelude = R"(
struct bfloat16 { unsigned short bits; };
struct float16 { unsigned short bits; };
template <typename T, int N> struct alignas(N * sizeof(T)) Vector { T at[N]; };

__device__ inline float to_float(bfloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__device__ inline bfloat16 to_bfloat16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  bfloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
#else
  const unsigned bits = __float_as_uint(x);
  const unsigned rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return {static_cast<unsigned short>(x != x ? 0x7FC0u : rounded)};
#endif
}
__device__ inline float to_float(float16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}
__device__ inline float16 to_float16(float x) {
  float16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
__device__ inline int to_int(float x) { return x != x ? 0 : __float2int_rz(x); }
__device__ inline int to_int(double x) { return x != x ? 0 : __double2int_rz(x); }
__device__ inline long long to_long(float x) { return x != x ? 0 : __float2ll_rz(x); }
__device__ inline long long to_long(double x) { return x != x ? 0 : __double2ll_rz(x); }
template <typename T> __device__ inline unsigned char to_byte(T x) {
  return static_cast<unsigned char>(to_int(x < T(-128) ? T(-128) : x > T(127) ? T(127) : x));
}
template <typename T> __device__ inline T smaller(T a, T b) { return a < b || a != a ? a : b; }
template <typename T> __device__ inline T larger(T a, T b) { return a > b || a != a ? a : b; }
template <typename T> __device__ inline T gcd(T a, T b) {
  while (a != 0) {
    const T rest = b % a;
    b = a;
    a = rest;
  }
  return b < 0 ? -b : b;
}
template <typename T> __device__ inline T lcm(T a, T b) {
  const T divisor = gcd(a, b);
  const T multiple = divisor == 0 ? T(0) : a / divisor * b;
  return multiple < 0 ? -multiple : multiple;
}
// As LibTorch's kernels on a GPU compute gelu. For large negative x it is 0 where the C library's erfc is not.
__device__ inline float normal_cdf(float x) { return 0.5f * (1.0f + erff(x * 0.70710678118654752f)); }
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline double infinite() { return __longlong_as_double(0x7FF0000000000000LL); }
__device__ inline double not_a_number() { return __longlong_as_double(0x7FF8000000000000LL); }
)";

#define SCONCE_DEVICE_TEXT(...) #__VA_ARGS__ "\n"
constexpr const char* kSpecialFunctions =
#include "fusion/cuda/special_functions.inc"
    ;
#undef SCONCE_DEVICE_TEXT

bool is_floating(c10::ScalarType type) { return c10::isFloatingType(type); }

// Returns the operation of two values. That of integers wraps.
std::string arithmetic(const char* op, c10::ScalarType type, const std::string& a, const std::string& b) {
  const std::string plain = a + " " + op + " " + b;
  if (is_floating(type) || type == at::kBool) {
    return plain;
  }
  const char* const bits = type == at::kLong ? "unsigned long long" : "unsigned";
  return "static_cast<" + device_type(type) + ">(static_cast<" + bits + ">(" + a + ") " + op + " static_cast<" + bits +
         ">(" + b + "))";
}

// Returns a call of the function, with an "f" after the name if the type is float32.
std::string called(std::string_view function, c10::ScalarType type, const std::array<std::string, 3>& operands,
                   size_t count) {
  std::string text(function);
  text += type == at::kFloat ? "f(" : "(";
  for (size_t i = 0; i < count; ++i) {
    text += (i == 0 ? "" : ", ") + operands[i];
  }
  return text + ")";
}

struct DeviceFunction {
  std::string_view name;
  std::string_view text;
  bool is_of_library;  // CUDA's, with an "f" at the end for float32; else of special_functions.inc
};

// Those that take floating numbers and have a text.
const DeviceFunction* device_function(std::string_view name) {
  static constexpr DeviceFunction kFunctions[] = {
      {"acosh", "acosh", true},
      {"asinh", "asinh", true},
      {"nextafter", "nextafter", true},
      {"erfinv", "erfinv", true},
      {"erfcx", "erfcx", true},
      {"ndtri", "normcdfinv", true},
      {"bessel_j0", "j0", true},
      {"bessel_j1", "j1", true},
      {"bessel_y0", "y0", true},
      {"bessel_y1", "y1", true},
      {"i0", "cyl_bessel_i0", true},
      {"i1", "cyl_bessel_i1", true},
      {"modified_bessel_i0", "cyl_bessel_i0", true},
      {"modified_bessel_i1", "cyl_bessel_i1", true},
      {"digamma", "digamma", false},
      {"trigamma", "trigamma", false},
      {"polygamma", "polygamma", false},
      {"zeta", "zeta", false},
      {"i0e", "i0e", false},
      {"i1e", "i1e", false},
      {"modified_bessel_k0", "modified_bessel_k<0>", false},
      {"modified_bessel_k1", "modified_bessel_k<1>", false},
      {"scaled_modified_bessel_k0", "scaled_modified_bessel_k<0>", false},
      {"scaled_modified_bessel_k1", "scaled_modified_bessel_k<1>", false},
      {"spherical_bessel_j0", "spherical_bessel_j0", false},
      {"log_ndtr", "log_ndtr", false},
      {"chebyshev_polynomial_t", "chebyshev<1>", false},
      {"chebyshev_polynomial_u", "chebyshev<2>", false},
      {"chebyshev_polynomial_v", "chebyshev<3>", false},
      {"chebyshev_polynomial_w", "chebyshev<4>", false},
      {"shifted_chebyshev_polynomial_t", "shifted_chebyshev<1>", false},
      {"shifted_chebyshev_polynomial_u", "shifted_chebyshev<2>", false},
      {"shifted_chebyshev_polynomial_v", "shifted_chebyshev<3>", false},
      {"shifted_chebyshev_polynomial_w", "shifted_chebyshev<4>", false},
      {"hermite_polynomial_h", "hermite<2>", false},
      {"hermite_polynomial_he", "hermite<1>", false},
      {"laguerre_polynomial_l", "laguerre", false},
      {"legendre_polynomial_p", "legendre", false},
  };
  const auto* const found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                         [&](const DeviceFunction& each) { return each.name == name; });
  return found == std::end(kFunctions) ? nullptr : found;
}

std::optional<std::string> call_of(const Instruction& instruction, const std::array<std::string, 3>& operands) {
  const ScalarFunction& function = scalar_functions()[instruction.index];
  if (function.name == "gcd" || function.name == "lcm") {
    return called(function.name, at::kInt, operands, 2);
  }
  const DeviceFunction* const found = device_function(function.name);
  return found == nullptr ? std::nullopt
                          : std::optional(called(found->text, found->is_of_library ? instruction.type : at::kDouble,
                                                 operands, function.operands));
}

std::string converted(c10::ScalarType from, c10::ScalarType to, const std::string& a) {
  if (c10::isReducedFloatingType(from)) {
    return to == at::kFloat ? "to_float(" + a + ")" : converted(at::kFloat, to, "to_float(" + a + ")");
  }
  if (c10::isReducedFloatingType(to)) {
    return "to_" + device_type(to) + "(" + (from == at::kFloat ? a : "static_cast<float>(" + a + ")") + ")";
  }
  if (to == at::kBool) {
    return a + " != 0";
  }
  if (is_floating(from) && !is_floating(to)) {
    return std::string(to == at::kLong ? "to_long(" : to == at::kInt ? "to_int(" : "to_byte(") + a + ")";
  }
  return "static_cast<" + device_type(to) + ">(" + a + ")";
}

}  // namespace

const char* device_prelude() { return kPrelude; }
const char* special_device_functions() { return kSpecialFunctions; }

bool is_special_device_function(std::string_view name) {
  const DeviceFunction* const found = device_function(name);
  return found != nullptr && !found->is_of_library;
}

std::string device_type(c10::ScalarType type) {
  switch (type) {
    case at::kFloat: return "float";
    case at::kDouble: return "double";
    case at::kBFloat16: return "bfloat16";
    case at::kHalf: return "float16";
    case at::kLong: return "long long";
    case at::kInt: return "int";
    case at::kByte: return "unsigned char";
    case at::kBool: return "bool";
    default: return "Index";
  }
}

std::string device_literal(const Instruction& literal) {
  if (literal.type == at::kBool) {
    return literal.integer != 0 ? "true" : "false";
  }
  if (c10::isReducedFloatingType(literal.type)) {
    Instruction number = literal;
    number.type = at::kFloat;
    return "to_" + device_type(literal.type) + "(" + device_literal(number) + ")";
  }
  std::array<char, 64> text{};
  if (!is_floating(literal.type)) {
    // The least number has no literal of its own.
    std::snprintf(text.data(), text.size(), literal.integer < 0 ? "static_cast<long long>(0x%llxULL)" : "%lldLL",
                  static_cast<long long>(literal.integer));
    return "static_cast<" + device_type(literal.type) + ">(" + text.data() + ")";
  }
  const bool is_float = literal.type != at::kDouble;
  if (std::isfinite(literal.literal)) {
    std::snprintf(text.data(), text.size(), is_float ? "%af" : "%a", literal.literal);
    return text.data();
  }
  const std::string infinity = is_float ? "__uint_as_float(0x7F800000u)" : "__longlong_as_double(0x7FF0000000000000LL)";
  const std::string nan = is_float ? "__uint_as_float(0x7FC00000u)" : "__longlong_as_double(0x7FF8000000000000LL)";
  return std::isnan(literal.literal) ? nan : literal.literal < 0 ? "-" + infinity : infinity;
}

std::optional<std::string> device_expression(const Instruction& instruction, c10::ScalarType operand,
                                             const std::array<std::string, 3>& operands) {
  const auto& [a, b, c] = operands;
  const c10::ScalarType type = instruction.type;
  const bool is_real = is_floating(operand);
  const auto function = [&](std::string_view name) {
    return called(name, operand, operands, operand_count(instruction.op));
  };
  switch (instruction.op) {
    case MachineOp::kLiteral: return device_literal(instruction);
    case MachineOp::kConvert: return converted(operand, type, a);
    case MachineOp::kAdd: return arithmetic("+", type, a, b);
    case MachineOp::kSub: return arithmetic("-", type, a, b);
    case MachineOp::kMul: return arithmetic("*", type, a, b);
    case MachineOp::kDiv: return a + " / " + b;
    case MachineOp::kRemainder: return a + " % " + b;
    case MachineOp::kFma: return function("fma");
    case MachineOp::kNeg: return is_real ? "-" + a : arithmetic("-", type, "0", a);
    case MachineOp::kAbs: return is_real ? function("fabs") : a + " < 0 ? " + arithmetic("-", type, "0", a) + " : " + a;
    case MachineOp::kSqrt: return function("sqrt");
    case MachineOp::kFloor: return function("floor");
    case MachineOp::kCeil: return function("ceil");
    case MachineOp::kTrunc: return function("trunc");
    case MachineOp::kRound: return function("rint");
    case MachineOp::kCopysign: return function("copysign");
    case MachineOp::kMin: return "smaller(" + a + ", " + b + ")";
    case MachineOp::kMax: return "larger(" + a + ", " + b + ")";
    case MachineOp::kEqual: return a + " == " + b;
    case MachineOp::kNotEqual: return a + " != " + b;
    case MachineOp::kLess: return a + " < " + b;
    case MachineOp::kLessEqual: return a + " <= " + b;
    case MachineOp::kGreater: return a + " > " + b;
    case MachineOp::kGreaterEqual: return a + " >= " + b;
    case MachineOp::kAnd: return "static_cast<" + device_type(type) + ">(" + a + " & " + b + ")";
    case MachineOp::kOr: return "static_cast<" + device_type(type) + ">(" + a + " | " + b + ")";
    case MachineOp::kXor: return "static_cast<" + device_type(type) + ">(" + a + " ^ " + b + ")";
    case MachineOp::kNot: return type == at::kBool ? "!" + a : "static_cast<" + device_type(type) + ">(~" + a + ")";
    case MachineOp::kShiftLeft: return arithmetic("<<", type, a, b);
    case MachineOp::kShiftRight: return "static_cast<" + device_type(type) + ">(" + a + " >> " + b + ")";
    case MachineOp::kSelect: return a + " ? " + b + " : " + c;
    case MachineOp::kSigmoid: return "sigmoid(" + a + ")";
    case MachineOp::kNormalCdf: return "normal_cdf(" + a + ")";
    case MachineOp::kCall:
    case MachineOp::kCallOfTwo: return call_of(instruction, operands);
    default:
      SCONCE_ASSERT(is_library_function(instruction.op), name_of(instruction.op), " has no expression");
      return function(name_of(instruction.op));
  }
}

}  // namespace sconce
