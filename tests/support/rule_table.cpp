#include "tests/support/rule_table.h"

#include <map>
#include <sstream>

namespace sconce::testing {

const char* words_for(Dtypes dtypes) {
  switch (dtypes) {
    case Dtypes::kFloating: return "floating";
    case Dtypes::kFloat32And64: return "float32, float64";
    case Dtypes::kNumbers: return "floating, integers";
    case Dtypes::kSignedNumbers: return "floating, signed integers";
    case Dtypes::kAll: return "floating, integers, bool";
    case Dtypes::kIntegersAndBool: return "integers, bool";
    case Dtypes::kIntegers: return "integers";
    case Dtypes::kAllButBFloat16: return "float32, float64, integers, bool";
  }
  return "";
}

std::string words_for(const Distance& distance) {
  std::ostringstream text;
  if (distance.ulps == 0) {
    text << "exact";
  } else {
    text << distance.ulps << (distance.of_operand ? " of the operand" : "") << ", bfloat16 " << distance.bfloat16_ulps;
  }
  text << (distance.any_zero ? ", zeros of either sign" : "") << (distance.any_infinity ? ", infinities of either sign" : "")
       << (distance.any_nan ? ", NaN may differ" : "") << (distance.any_overflow ? ", NaN of overflow may differ" : "")
       << (distance.any_of_nan ? ", results of NaN may differ" : "");
  return text.str();
}

std::span<const RuleRow> rule_rows() {
  static const std::vector<RuleRow> rows = {
      // Arithmetic
      {"add", Dtypes::kAll},
      {"sub", Dtypes::kNumbers},
      {"rsub", Dtypes::kNumbers},
      {"mul", Dtypes::kAll},
      {"div", Dtypes::kAll},
      {"div.Tensor_mode", Dtypes::kAll, {.any_overflow = true}},
      {"div.Scalar_mode", Dtypes::kAll, {.any_overflow = true}},
      {"floor_divide", Dtypes::kAllButBFloat16, {.any_overflow = true}},
      {"fmod", Dtypes::kAll, {.any_overflow = true}},
      {"remainder", Dtypes::kAll, {.any_overflow = true}},
      {"clone", Dtypes::kAll},
      {"addcmul", Dtypes::kFloating},
      {"addcdiv", Dtypes::kFloating},
      {"lerp", Dtypes::kFloating, {.any_zero = true}},
      {"maximum", Dtypes::kAll, {.any_zero = true}},
      {"minimum", Dtypes::kAll, {.any_zero = true}},
      {"abs", Dtypes::kSignedNumbers},
      {"neg", Dtypes::kSignedNumbers},
      {"sign", Dtypes::kAll},
      {"sgn", Dtypes::kAll},
      {"copysign", Dtypes::kAll},
      {"signbit", Dtypes::kSignedNumbers},
      {"frac", Dtypes::kFloating},
      {"floor", Dtypes::kNumbers},
      {"ceil", Dtypes::kNumbers},
      {"trunc", Dtypes::kNumbers},
      {"round", Dtypes::kNumbers},
      {"square", Dtypes::kNumbers},
      {"sqrt", Dtypes::kAll, {1}},
      {"rsqrt", Dtypes::kAll, {1}},
      {"reciprocal", Dtypes::kAll},
      {"pow.Tensor_Scalar", Dtypes::kNumbers, {1}},
      {"pow", Dtypes::kAll, {1}},
      {"deg2rad", Dtypes::kFloating},
      {"rad2deg", Dtypes::kFloating},
      // Comparisons, logic, selection
      {"eq", Dtypes::kAll},
      {"ne", Dtypes::kAll},
      {"lt", Dtypes::kAll},
      {"le", Dtypes::kAll},
      {"gt", Dtypes::kAll},
      {"ge", Dtypes::kAll},
      {"isnan", Dtypes::kAll},
      {"isinf", Dtypes::kAll},
      {"isfinite", Dtypes::kAll},
      {"logical_and", Dtypes::kAll},
      {"logical_or", Dtypes::kAll},
      {"logical_xor", Dtypes::kAll},
      {"logical_not", Dtypes::kAll},
      {"bitwise_and", Dtypes::kIntegersAndBool},
      {"bitwise_or", Dtypes::kIntegersAndBool},
      {"bitwise_xor", Dtypes::kIntegersAndBool},
      {"bitwise_not", Dtypes::kIntegersAndBool},
      {"where", Dtypes::kAll},
      {"masked_fill", Dtypes::kAll},
      {"clamp", Dtypes::kAll},
      {"clamp.Tensor", Dtypes::kNumbers, {.any_zero = true}},
      {"clamp_min", Dtypes::kAll},
      {"clamp_max", Dtypes::kAll},
      {"clamp_min.Tensor", Dtypes::kAll, {.any_zero = true}},
      {"clamp_max.Tensor", Dtypes::kAll, {.any_zero = true}},
      {"nan_to_num", Dtypes::kFloating},
      // Functions
      {"exp", Dtypes::kAll, {2}},
      {"exp2", Dtypes::kAll, {2}},
      {"expm1", Dtypes::kAll, {2}},
      {"log", Dtypes::kAll, {2}},
      {"log1p", Dtypes::kAll, {2}},
      {"log2", Dtypes::kAll, {2}},
      {"log10", Dtypes::kAll, {2}},
      {"logit", Dtypes::kAll, {.ulps = 2, .bfloat16_ulps = 2}},
      {"xlogy", Dtypes::kAll, {2}},
      {"erf", Dtypes::kAll, {.ulps = 2, .bfloat16_ulps = 3}},
      {"erfc", Dtypes::kAll, {4}},
      {"sin", Dtypes::kAll, {2}},
      {"cos", Dtypes::kAll, {2}},
      {"tan", Dtypes::kAll, {2}},
      {"asin", Dtypes::kAll, {2}},
      {"acos", Dtypes::kAll, {2}},
      {"atan", Dtypes::kAll, {2}},
      {"atan2", Dtypes::kAll, {2}},
      {"sinh", Dtypes::kAll, {2}},
      {"cosh", Dtypes::kAll, {2}},
      {"tanh", Dtypes::kAll, {3}},
      {"atanh", Dtypes::kAll, {2}},
      // Activations
      {"relu", Dtypes::kNumbers},
      {"relu6", Dtypes::kFloating},
      {"hardtanh", Dtypes::kFloating},
      {"threshold", Dtypes::kFloating},
      {"leaky_relu", Dtypes::kFloating},
      {"hardsigmoid", Dtypes::kFloating},
      {"hardswish", Dtypes::kFloating},
      {"hardshrink", Dtypes::kFloating},
      {"softshrink", Dtypes::kFloating, {.any_zero = true}},
      {"sigmoid", Dtypes::kFloating, {4}},
      {"log_sigmoid", Dtypes::kFloating, {3}},
      {"silu", Dtypes::kFloating, {4}},
      {"gelu", Dtypes::kFloating, {.ulps = 3, .of_operand = true, .any_zero = true, .any_nan = true, .bfloat16_ulps = 2}},
      {"elu", Dtypes::kFloating, {3}},
      {"selu", Dtypes::kFloating, {3}},
      {"celu", Dtypes::kFloating, {3}},
      {"softplus", Dtypes::kFloating, {3}},
      {"mish", Dtypes::kFloating, {4}},
      // Functions of two operands
      {"max.other", Dtypes::kAll, {.any_zero = true}},
      {"min.other", Dtypes::kAll, {.any_zero = true}},
      {"fmax", Dtypes::kNumbers, {.any_zero = true}},
      {"fmin", Dtypes::kNumbers, {.any_zero = true}},
      {"true_divide", Dtypes::kAll},
      {"bitwise_left_shift", Dtypes::kIntegersAndBool},
      {"bitwise_right_shift", Dtypes::kIntegersAndBool},
      {"__lshift__", Dtypes::kIntegersAndBool},
      {"__rshift__", Dtypes::kIntegersAndBool},
      {"gcd", Dtypes::kIntegers},
      {"lcm", Dtypes::kIntegers},
      {"heaviside", Dtypes::kNumbers},
      {"hypot", Dtypes::kFloating, {1}},
      {"logaddexp", Dtypes::kFloating, {.ulps = 2, .of_operand = true}},
      {"logaddexp2", Dtypes::kFloating, {.ulps = 2, .of_operand = true}},
      {"ldexp", Dtypes::kFloating, {64}},
      {"float_power", Dtypes::kAll, {1}},
      // Special functions
      {"angle", Dtypes::kAll},
      {"isposinf", Dtypes::kAll},
      {"isneginf", Dtypes::kAll},
      {"acosh", Dtypes::kAll, {2}},
      {"asinh", Dtypes::kAll, {2}},
      {"lgamma", Dtypes::kAll, {2}},
      {"sinc", Dtypes::kAll, {2}},
      {"special_entr", Dtypes::kAll, {2}},
      {"special_ndtr", Dtypes::kAll, {.ulps = 2, .of_operand = true}},
      {"special_xlog1py", Dtypes::kAll, {.ulps = 2, .of_operand = true, .any_zero = true, .any_nan = true}},
      {"polygamma", Dtypes::kAll, {1}},
      {"nextafter", Dtypes::kFloat32And64},
      {"igamma", Dtypes::kFloating, {256}},
      {"igammac", Dtypes::kFloating, {8}},
      {"digamma", Dtypes::kAll},
      {"erfinv", Dtypes::kAll, {16}},
      {"i0", Dtypes::kAll, {1}},
      {"special_i0e", Dtypes::kAllButBFloat16},
      {"special_i1", Dtypes::kAllButBFloat16, {4}},
      {"special_i1e", Dtypes::kAllButBFloat16, {4}},
      {"special_ndtri", Dtypes::kAllButBFloat16},
      {"special_log_ndtr", Dtypes::kAllButBFloat16, {1}},
      {"special_erfcx", Dtypes::kAllButBFloat16},
      {"special_airy_ai", Dtypes::kAllButBFloat16},
      {"special_bessel_j0", Dtypes::kAllButBFloat16},
      {"special_bessel_j1", Dtypes::kAllButBFloat16},
      {"special_bessel_y0", Dtypes::kAllButBFloat16},
      {"special_bessel_y1", Dtypes::kAllButBFloat16},
      {"special_modified_bessel_i0", Dtypes::kAllButBFloat16},
      {"special_modified_bessel_i1", Dtypes::kAllButBFloat16},
      {"special_modified_bessel_k0", Dtypes::kAllButBFloat16},
      {"special_modified_bessel_k1", Dtypes::kAllButBFloat16},
      {"special_scaled_modified_bessel_k0", Dtypes::kAllButBFloat16},
      {"special_scaled_modified_bessel_k1", Dtypes::kAllButBFloat16},
      {"special_spherical_bessel_j0", Dtypes::kAllButBFloat16},
      {"special_chebyshev_polynomial_t", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_chebyshev_polynomial_u", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_chebyshev_polynomial_v", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_chebyshev_polynomial_w", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_hermite_polynomial_h", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_hermite_polynomial_he", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_laguerre_polynomial_l", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_legendre_polynomial_p", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_shifted_chebyshev_polynomial_t", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_shifted_chebyshev_polynomial_u", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_shifted_chebyshev_polynomial_v", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_shifted_chebyshev_polynomial_w", Dtypes::kAllButBFloat16, {.any_of_nan = true}},
      {"special_zeta", Dtypes::kAllButBFloat16},
      // Gradients
      {"sigmoid_backward", Dtypes::kFloating},
      {"tanh_backward", Dtypes::kFloating, {1}},
      {"silu_backward", Dtypes::kFloating, {.ulps = 3, .of_operand = true}},
      {"mish_backward", Dtypes::kFloating, {.ulps = 16, .of_operand = true, .any_nan = true}},
      {"gelu_backward", Dtypes::kFloating, {.ulps = 3, .of_operand = true, .any_zero = true, .any_nan = true}},
      {"elu_backward", Dtypes::kFloating, {.ulps = 3, .of_operand = true, .any_of_nan = true}},
      {"leaky_relu_backward", Dtypes::kFloating},
      {"hardtanh_backward", Dtypes::kFloating, {.any_of_nan = true}},
      {"hardsigmoid_backward", Dtypes::kFloating, {.any_of_nan = true}},
      {"hardswish_backward", Dtypes::kFloating, {.any_of_nan = true}},
      {"hardshrink_backward", Dtypes::kFloating, {.any_of_nan = true}},
      {"softshrink_backward", Dtypes::kFloating, {.any_of_nan = true}},
      {"threshold_backward", Dtypes::kNumbers},
      {"softplus_backward", Dtypes::kFloating, {3}},
      {"log_sigmoid_backward", Dtypes::kFloating},
      {"logit_backward", Dtypes::kFloat32And64, {.any_infinity = true, .any_of_nan = true}},
      {"native_dropout_backward", Dtypes::kFloating},
  };
  return rows;
}

const RuleRow* find_rule_row(const c10::OperatorName& name) {
  static const auto by_name = [] {
    std::map<std::string, const RuleRow*> rows;
    for (const RuleRow& row : rule_rows()) {
      rows.emplace("aten::" + std::string(row.name), &row);
    }
    return rows;
  }();
  const auto exact = by_name.find(name.name + "." + name.overload_name);
  const auto found = exact != by_name.end() ? exact : by_name.find(name.name);
  return found == by_name.end() ? nullptr : found->second;
}

bool contains(Dtypes dtypes, at::ScalarType dtype) {
  const bool is_floating = c10::isFloatingType(dtype);
  switch (dtypes) {
    case Dtypes::kFloating: return is_floating;
    case Dtypes::kFloat32And64: return is_floating && dtype != at::kBFloat16;
    case Dtypes::kNumbers: return dtype != at::kBool;
    case Dtypes::kSignedNumbers: return dtype != at::kBool && dtype != at::kByte;
    case Dtypes::kAll: return true;
    case Dtypes::kIntegersAndBool: return !is_floating;
    case Dtypes::kIntegers: return !is_floating && dtype != at::kBool;
    case Dtypes::kAllButBFloat16: return dtype != at::kBFloat16;
  }
  return false;
}

Distance distance_for(const RuleRow& row, at::ScalarType dtype) {
  Distance distance = row.distance;
  if (dtype == at::kBFloat16) {
    distance.ulps = distance.ulps == 0 ? 0 : distance.bfloat16_ulps;
  }
  return distance;
}

}  // namespace sconce::testing
