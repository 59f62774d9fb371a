// Kernels of a cubin on one device.
#pragma once

#include "cuda/driver.h"
#include "plan/device/device.h"

#include <memory>
#include <string>

namespace sconce::cuda {

// Driver and context must outlive the module.
Expected<std::shared_ptr<DeviceModule>> load_cubin(Driver& driver, CUcontext context, const std::string& cubin);

// A kernel of such a module. Shared memory beyond 48 KiB is asked for when a launch first wants it.
Expected<void> launch(Driver& driver, const DeviceKernel& kernel, const LaunchShape& shape, CUstream stream,
                      std::span<void* const> arguments);

}  // namespace sconce::cuda
