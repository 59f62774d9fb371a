// Elements that find the limits of an operator, and how far two elements lie apart.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace sconce::testing {

// A contiguous tensor of zeros of either sign, infinities, NaN, denormals, ties, huge values, and random ones of several
// magnitudes. `operand` arranges them so that operands of several positions meet in all pairs.
at::Tensor special_values(int64_t count, at::ScalarType dtype, size_t operand, uint64_t seed = 1);

// How far results may lie apart.
struct Distance {
  double ulps = 0;            // 0: the same bits, but that any NaN is NaN; else results below the normal numbers are equal
  bool of_operand = false;    // an ulp of the first operand counts, where that is larger
  bool any_zero = false;      // zero may have either sign
  bool any_nan = false;       // a result may be NaN where the other is not
  bool any_infinity = false;  // infinity may have either sign
  bool any_of_nan = false;    // the result of a NaN may be anything
  double bfloat16_ulps = 1;   // of bfloat16, where `ulps` is not 0
};

// Returns how many ulps the results differ at most, and sets `where` to the element's index. NaN beside a number, and
// tensors of different dtype or sizes, are infinitely far apart.
double distance_between(const at::Tensor& a, const at::Tensor& b, const at::Tensor& first_operand, const Distance& allowed,
                        int64_t* where);

}  // namespace sconce::testing
