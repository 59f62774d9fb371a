// Derives the sizes of an operator's results from those of its operands.
#pragma once

#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

#include <ATen/core/function_schema.h>

#include <optional>

namespace sconce {

// Evaluates the operator's shape function on abstract values; symbolic sizes stay symbolic. Shape functions are TorchScript
// programs on lists of integers. They come from the operator's row, or else from LibTorch.
//
// `operands`: one per argument of the schema; lists are given as their elements. Returns the sizes of each returned tensor.
// Nothing if the operator has no shape function, if a rank is not known, or if the operator would raise.
std::optional<std::vector<std::vector<Dim>>> evaluate_shape_function(const Op& op, const AbstractValues& operands,
                                                                     SizeArithmetic& arithmetic);

}  // namespace sconce
