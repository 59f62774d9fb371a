// Which compiler makes the kernels of a device.
#pragma once

#include "base/expected.h"
#include "fusion/cuda/device_kernel_cache.h"
#include "plan/prepared/group.h"

#include <c10/core/Device.h>

namespace sconce {

// Returns what makes kernels for tensors on the device: the same one in every call. With `is_blocking`, kernels are compiled
// before the first run, else in the background. Refuses a device for which there are no kernels, with the reason.
Expected<const GroupCompiler*> kernels_on(c10::Device device, bool is_blocking);

// Returns the process's kernels for the devices of this runtime.
DeviceKernelCache& device_kernels(DeviceRuntime& runtime);

}  // namespace sconce
