// The back end of kernels for GPUs.
#pragma once

#include "fusion/cuda/device_kernel_cache.h"
#include "fusion/program/kernel_backend.h"

#include <memory>

namespace sconce {

// Makes code for one device, which runs on the calling thread's current stream. With `is_blocking`, code is compiled when it
// is made. The cache must outlive the back end.
std::unique_ptr<KernelBackend> make_cuda_nests(DeviceKernelCache& kernels, c10::DeviceIndex device, bool is_blocking);

}  // namespace sconce
