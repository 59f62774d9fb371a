// Launches of one kernel that follow each other in a capture become one launch, of the kernel for a list of calls.
#pragma once

#include "fusion/cuda/cuda_text.h"
#include "fusion/cuda/device_kernel_cache.h"
#include "plan/device/device.h"

#include <cstdint>
#include <vector>

namespace sconce {

// The bytes that a call reads or writes; `end` lies behind the last one.
struct UsedMemory {
  uintptr_t begin;
  uintptr_t end;
  bool is_written;
};

// Launches a kernel that has a list on the stream. While the stream is captured, the call joins an earlier launch of the
// capture if it may run at the same time as that one and as all that came after it: nothing but such launches, of which
// none writes what this one uses, or uses what this one writes.
void launch_or_join(DeviceRuntime& runtime, const CachedDeviceKernel& kernel, const LaunchShape& shape, c10::Stream stream,
                    std::vector<char> parameter, std::vector<UsedMemory> memory);

}  // namespace sconce
