#include "tests/fusion/rule_table.h"

#include <ATen/core/operator_name.h>

#include <map>
#include <sstream>

namespace sconce::testing {
namespace {

const char* words_for(Dtypes dtypes) {
  switch (dtypes) {
    case Dtypes::kFloating: return "floating";
    case Dtypes::kFloat32And64: return "float32, float64";
    case Dtypes::kNumbers: return "floating, integers";
    case Dtypes::kSignedNumbers: return "floating, signed integers";
    case Dtypes::kAll: return "floating, integers, bool";
    case Dtypes::kIntegersAndBool: return "integers, bool";
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
       << (distance.any_nan ? ", NaN may differ" : "") << (distance.any_of_nan ? ", results of NaN may differ" : "");
  return text.str();
}

}  // namespace

std::span<const RuleRow> rule_rows() {
  static const std::vector<RuleRow> rows = {
      // Arithmetic
      {"add", Dtypes::kAll},
      {"sub", Dtypes::kNumbers},
      {"rsub", Dtypes::kNumbers},
      {"mul", Dtypes::kAll},
      {"div", Dtypes::kFloating},
      {"div.Tensor_mode", Dtypes::kFloating, {.any_nan = true}},
      {"div.Scalar_mode", Dtypes::kFloating, {.any_nan = true}},
      {"floor_divide", Dtypes::kFloat32And64, {.any_nan = true}},
      {"fmod", Dtypes::kFloating, {.any_nan = true}},
      {"remainder", Dtypes::kFloating, {.any_nan = true}},
      {"addcmul", Dtypes::kFloating},
      {"addcdiv", Dtypes::kFloating},
      {"lerp", Dtypes::kFloating, {.any_zero = true}},
      {"maximum", Dtypes::kAll, {.any_zero = true}},
      {"minimum", Dtypes::kAll, {.any_zero = true}},
      {"abs", Dtypes::kSignedNumbers},
      {"neg", Dtypes::kSignedNumbers},
      {"sign", Dtypes::kAll},
      {"sgn", Dtypes::kAll},
      {"copysign", Dtypes::kFloating},
      {"signbit", Dtypes::kSignedNumbers},
      {"frac", Dtypes::kFloating},
      {"floor", Dtypes::kNumbers},
      {"ceil", Dtypes::kNumbers},
      {"trunc", Dtypes::kNumbers},
      {"round", Dtypes::kNumbers},
      {"square", Dtypes::kNumbers},
      {"sqrt", Dtypes::kFloating, {1}},
      {"rsqrt", Dtypes::kFloating, {1}},
      {"reciprocal", Dtypes::kFloating},
      {"pow.Tensor_Scalar", Dtypes::kNumbers, {1}},
      {"pow", Dtypes::kFloating, {1}},
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
      {"exp", Dtypes::kFloating, {2}},
      {"exp2", Dtypes::kFloating, {2}},
      {"expm1", Dtypes::kFloating, {2}},
      {"log", Dtypes::kFloating, {2}},
      {"log1p", Dtypes::kFloating, {2}},
      {"log2", Dtypes::kFloating, {2}},
      {"log10", Dtypes::kFloating, {2}},
      {"logit", Dtypes::kFloating, {.ulps = 2, .bfloat16_ulps = 2}},
      {"xlogy", Dtypes::kFloating, {2}},
      {"erf", Dtypes::kFloating, {.ulps = 2, .bfloat16_ulps = 3}},
      {"erfc", Dtypes::kFloating, {4}},
      {"sin", Dtypes::kFloating, {2}},
      {"cos", Dtypes::kFloating, {2}},
      {"tan", Dtypes::kFloating, {2}},
      {"asin", Dtypes::kFloating, {2}},
      {"acos", Dtypes::kFloating, {2}},
      {"atan", Dtypes::kFloating, {2}},
      {"atan2", Dtypes::kFloating, {2}},
      {"sinh", Dtypes::kFloating, {2}},
      {"cosh", Dtypes::kFloating, {2}},
      {"tanh", Dtypes::kFloating, {3}},
      {"atanh", Dtypes::kFloating, {2}},
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
      {"sigmoid", Dtypes::kFloating, {3}},
      {"log_sigmoid", Dtypes::kFloating, {3}},
      {"silu", Dtypes::kFloating, {3}},
      {"gelu", Dtypes::kFloating, {.ulps = 3, .of_operand = true, .any_nan = true, .bfloat16_ulps = 2}},
      {"elu", Dtypes::kFloating, {3}},
      {"selu", Dtypes::kFloating, {3}},
      {"celu", Dtypes::kFloating, {3}},
      {"softplus", Dtypes::kFloating, {3}},
      {"mish", Dtypes::kFloating, {4}},
      // Gradients
      {"sigmoid_backward", Dtypes::kFloating},
      {"tanh_backward", Dtypes::kFloating, {1}},
      {"silu_backward", Dtypes::kFloating, {.ulps = 3, .of_operand = true}},
      {"mish_backward", Dtypes::kFloating, {.ulps = 16, .of_operand = true, .any_nan = true}},
      {"gelu_backward", Dtypes::kFloating, {.ulps = 3, .of_operand = true, .any_nan = true}},
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

std::string rule_table_text() {
  // Rows of the same dtypes and distance share a line, in the order of their first operators.
  std::vector<std::pair<std::string, std::string>> lines;
  for (const RuleRow& row : rule_rows()) {
    const std::string key = std::string(words_for(row.dtypes)) + " | " + words_for(row.distance);
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == key; });
    const std::string name = "`" + std::string(row.name) + "`";
    if (same == lines.end()) {
      lines.emplace_back(key, name);
    } else {
      same->second += " " + name;
    }
  }
  std::string text = "| operators | dtypes | ulps |\n|---|---|---|\n";
  for (const auto& [key, names] : lines) {
    text += "| " + names + " | " + key + " |\n";
  }
  return text;
}

}  // namespace sconce::testing
