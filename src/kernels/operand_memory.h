// The memory of operands that may be None.
#pragma once

#include "plan/prepared/kernel.h"

namespace sconce {

// Returns the first element of an operand of float32; null for None.
inline float* memory_of(const KernelArguments& arguments, size_t position) {
  return arguments.is_tensor(position) ? static_cast<float*>(arguments.data(position)) : nullptr;
}

}  // namespace sconce
