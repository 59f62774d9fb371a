// What compiled kernels promise for each operator, and why they leave others to LibTorch: docs/operators.md shows it.
#pragma once

#include <ATen/core/operator_name.h>
#include <c10/core/ScalarType.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sconce::testing {

// How far results may lie apart.
struct Distance {
  double ulps = 0;          // 0: the same bits, but that any NaN is NaN; else results below the normal numbers are equal
  bool of_operand = false;  // an ulp of the first operand counts, where that is larger
  bool any_zero = false;    // zero may have either sign
  bool any_nan = false;     // a result may be NaN where the other is not
  bool any_overflow =
      false;  // the same of finite operands alone: LibTorch's quotients in vectors have NaN where they overflow
  bool any_infinity = false;  // infinity may have either sign
  bool any_of_nan = false;    // the result of a NaN may be anything
  double bfloat16_ulps = 1;   // of bfloat16, where `ulps` is not 0
};

// The dtypes of operands that kernels compute, all of one dtype. Conditions and masks are bools.
enum class Dtypes : uint8_t {
  kFloating,  // float32, float64, bfloat16
  kFloat32And64,
  kNumbers,        // … and integers
  kSignedNumbers,  // … but uint8
  kAll,            // … and bool
  kIntegersAndBool,
  kIntegers,
  kAllButBFloat16,
};

struct RuleRow {
  std::string_view name;  // without "aten::"; with an overload, of that overload alone
  Dtypes dtypes;
  Distance distance = {};  // of float32 and float64; of bfloat16 one ulp at most
};

// Pointwise operators and reductions that no kernel computes.
struct UnfusedOperators {
  std::string_view reason;
  std::vector<std::string_view> names;
};
std::span<const UnfusedOperators> unfused_operators();

std::span<const RuleRow> rule_rows();
// Returns null for an operator that has no row.
const RuleRow* find_rule_row(const c10::OperatorName& name);
bool contains(Dtypes dtypes, at::ScalarType dtype);
// Returns how far results of the dtype may lie apart.
Distance distance_for(const RuleRow& row, at::ScalarType dtype);
// Returns the dtypes, and the distance, in the words of docs/operators.md.
const char* words_for(Dtypes dtypes);
std::string words_for(const Distance& distance);

}  // namespace sconce::testing
