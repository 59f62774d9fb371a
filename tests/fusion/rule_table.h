// What kernels promise for each operator: the source of the table in docs/kernels.md.
#pragma once

#include "tests/fusion/element_values.h"

#include <c10/core/ScalarType.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sconce::testing {

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

// Operators that no kernel computes.
struct LeftRow {
  std::string_view reason;
  std::vector<std::string_view> names;
};
std::span<const LeftRow> left_rows();
// Returns the table of docs/kernels.md.
std::string left_table_text();

std::span<const RuleRow> rule_rows();
// Returns null for an operator that has no row.
const RuleRow* find_rule_row(const c10::OperatorName& name);
bool contains(Dtypes dtypes, at::ScalarType dtype);
// Returns how far results of the dtype may lie apart.
Distance distance_for(const RuleRow& row, at::ScalarType dtype);
// Returns the table of docs/kernels.md.
std::string rule_table_text();

}  // namespace sconce::testing
