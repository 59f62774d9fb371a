// Elements that find the limits of an operator, and how far two elements lie apart.
#pragma once

#include "tests/support/rule_table.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace sconce::testing {

// A contiguous tensor of zeros of either sign, infinities, NaN, denormals, ties, huge values, and random ones of several
// magnitudes. `operand` arranges them so that operands of several positions meet in all pairs.
at::Tensor special_values(int64_t count, at::ScalarType dtype, size_t operand, uint64_t seed = 1);

// Returns how many ulps the results differ at most, and sets `where` to the element's index. NaN beside a number, and
// tensors of different dtype or sizes, are infinitely far apart.
double distance_between(const at::Tensor& a, const at::Tensor& b, const at::Tensor& first_operand, const Distance& allowed,
                        int64_t* where);

}  // namespace sconce::testing
