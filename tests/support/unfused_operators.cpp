#include "tests/support/rule_table.h"

namespace sconce::testing {

std::span<const UnfusedOperators> unfused_operators() {
  static const std::vector<UnfusedOperators> rows = {
      {"no operator returns as a new tensor what this one writes", {"__ilshift__", "__ixor__"}},
      {"the functional overload has another name", {"ldexp_", "pow_"}},
      {"asks for a tensor of the dtype that the result has", {"float_power_"}},
      {"the functional operator has its arguments in another order", {"polygamma_"}},
      {"returns its operand, or a copy of it: nothing is computed", {"conj_physical", "conj_physical_", "positive"}},
      {"returns no tensor, or two", {"equal", "frexp"}},
      {"draws random numbers in training", {"rrelu"}},
      {"sums over a dimension that it adds", {"mvlgamma", "mvlgamma_"}},
      {"reductions to several results, to bools or positions, or without a kernel",
       {"all", "aminmax", "any", "argmax", "argmin", "count_nonzero", "linalg__powsum", "nansum", "std_mean", "var_mean"}},
      {"softmax of other kinds", {"special_softmax", "special_log_softmax", "_softmax", "_log_softmax"}},
      {"norms over dimensions that are not the last, or with several results",
       {"group_norm", "instance_norm", "native_batch_norm", "native_group_norm", "native_layer_norm", "renorm",
        "linalg_norm", "linalg_matrix_norm"}},
  };
  return rows;
}

}  // namespace sconce::testing
