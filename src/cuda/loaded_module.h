// The kernels of a cubin on one device.
#pragma once

#include "cuda/driver.h"
#include "plan/device/device.h"

#include <memory>
#include <string>

namespace sconce::cuda {

// Loads a cubin. Driver and context must outlive the module.
Expected<std::shared_ptr<DeviceModule>> load_cubin(Driver& driver, CUcontext context, const std::string& cubin);

// Launches a kernel of such a module. Raises the kernel's limit of shared memory when a launch first needs more than 48 KiB.
Expected<void> launch(Driver& driver, const DeviceKernel& kernel, const LaunchShape& shape, CUstream stream,
                      std::span<void* const> arguments);
// Makes a launch that is captured one of this kernel.
Expected<void> change_launch(Driver& driver, CUgraphNode node, const DeviceKernel& kernel, const LaunchShape& shape,
                             std::span<void* const> arguments);

}  // namespace sconce::cuda
