#include "tests/support/rule_table.h"

namespace sconce::testing {

std::span<const UnfusedOperators> unfused_operators() {
  static const std::vector<UnfusedOperators> rows = {
      {"the functional operator is computed; autocast casts its operands and not those of this one, so it does not replace "
       "this one",
       {"acos_", "addcdiv_", "addcmul_", "asin_", "atan2_", "cosh_", "erfinv_", "exp_", "expm1_", "log10_", "log1p_",
        "log2_", "log_", "pow_", "reciprocal_", "rsqrt_", "sinh_", "tan_"}},
      {"the functional operator is computed; of integers and bools it may have another dtype than the tensor that this one "
       "writes",
       {"__ilshift__", "__ixor__", "bitwise_and_", "bitwise_left_shift_", "bitwise_not_", "bitwise_or_",
        "bitwise_right_shift_", "bitwise_xor_", "logical_and_", "logical_not_", "logical_or_", "logical_xor_"}},
      {"the functional operator is computed; its result may have other strides or another dtype than the tensor that this "
       "one writes",
       {"float_power_", "ldexp_"}},
      {"the functional operator is computed; backward of this one raises, so it does not replace this one",
       {"acosh_", "asinh_", "atanh_", "igamma_", "igammac_", "nextafter_"}},
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
