// The precision in which LibTorch computes with float32.
#pragma once

#include <ATen/Context.h>

namespace sconce {

// Returns false where the user asks LibTorch for such operators in a lower precision.
inline bool computes_in_float32(at::Float32Op op) {
  const auto precision = at::globalContext().float32Precision(at::Float32Backend::MKLDNN, op);
  return precision != at::Float32Precision::BF16 && precision != at::Float32Precision::TF32;
}

}  // namespace sconce
