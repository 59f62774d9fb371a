// The allocator of tensors on the CPU.
#pragma once

#include <c10/core/CPUAllocator.h>

namespace sconce {

// Returns whether the program has set an allocator of its own. It may count each block, or pin it, so that large tensors
// come from it alone.
inline bool has_allocator_of_user() { return c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator(); }

}  // namespace sconce
