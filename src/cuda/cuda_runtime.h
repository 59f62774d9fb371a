// Implements the device interface (plan/device/device.h) for NVIDIA GPUs, with a Driver, LibTorch's CUDA library, and NVRTC.
#pragma once

#include "cuda/driver.h"
#include "cuda/nvrtc.h"
#include "cuda/torch_bridge.h"
#include "plan/device/device.h"

#include <memory>
#include <string>

namespace sconce::cuda {

// A null `driver` or `bridge` makes a runtime without devices, which can compile only, and reports `why_unavailable`.
// The runtime must outlive every module, event and capture that it made.
std::unique_ptr<DeviceRuntime> make_cuda_runtime(std::shared_ptr<Driver> driver, std::shared_ptr<TorchBridge> bridge,
                                                 NvrtcPlaces nvrtc, std::string why_unavailable = {});

// Makes the runtime of this machine.
std::unique_ptr<DeviceRuntime> make_cuda_runtime();

}  // namespace sconce::cuda
