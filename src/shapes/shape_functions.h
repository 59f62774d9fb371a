// The sizes of an operator's results, from the sizes of its operands.
#pragma once

#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

#include <ATen/core/function_schema.h>

#include <optional>

namespace sconce {

// LibTorch's own shape functions, which are TorchScript programs on lists of integers, run on what is known: sizes may be
// symbols, and stay such. Those of the result rules (ir/result_rules.h) go before them. `operands`: one per argument of
// the schema, elements in the place of lists. One sequence of integers per tensor that is returned. Nothing where there is
// no such function for the operator, where a rank is not known, or where the operator would raise.
std::optional<std::vector<std::vector<Dim>>> evaluate_shape_function(const Op& op, const AbstractValues& operands,
                                                                     SizeArithmetic& arithmetic);

}  // namespace sconce
