#pragma once

#include "tools/sconce/values/compare.h"

#include <ATen/core/Tensor.h>

namespace sconce::cli {

// Returns the first difference of two tensors, in the order definedness, dtype, shape, requires_grad, elements. Quantized
// tensors are compared dequantized, sparse ones dense.
std::optional<Mismatch> compare_tensors(const at::Tensor& got, const at::Tensor& expected, const CompareOptions& options,
                                        const std::string& path);

}  // namespace sconce::cli
