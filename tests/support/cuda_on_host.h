// CUDA tensors in a process without CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace sconce::testing {

// While it lives, LibTorch has eight CUDA devices over the host's memory: its allocator of CUDA devices gives out that
// memory, and operators on CUDA tensors run the CPU's kernels. No tensor may outlive it. Not for processes that load
// LibTorch's CUDA library. There is no backward: autograd's engine knows no threads for the devices (but
// for that of a SimulatedGpu).
class CudaOnHost {
 public:
  CudaOnHost();
  ~CudaOnHost();
  CudaOnHost(const CudaOnHost&) = delete;
  CudaOnHost& operator=(const CudaOnHost&) = delete;

  // Returns a copy of a CPU tensor on the device of this index.
  static at::Tensor tensor(const at::Tensor& values, int index = 0);
  // Returns a copy of a CUDA tensor on the CPU.
  static at::Tensor values(const at::Tensor& tensor);

 private:
  std::shared_ptr<void> registrations_;
};

}  // namespace sconce::testing
