// What autocast does to the operands of each operator.
#pragma once

#include <ATen/core/function_schema.h>

namespace sconce {

enum class AutocastPolicy {
  kNone,                   // left alone
  kReduced,                // floating operands are cast to the region's dtype
  kFull,                   // … to float32
  kFullUnlessDtype,        // … to float32, unless the call names a dtype itself
  kFullOnCudaUnlessDtype,  // the same for operands on CUDA devices; those on the CPU are left alone
  kWidest,                 // … to float32 where any operand is float32 or of unknown dtype
};

// The lists of TorchScript's own autocast (LibTorch 2.11), so that a script gives what LibTorch gives for it.
// In-place and out= variants are left alone.
AutocastPolicy autocast_policy(const c10::FunctionSchema& schema);

}  // namespace sconce
