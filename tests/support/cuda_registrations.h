// What LibTorch finds for CUDA devices, in a process without CUDA.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <functional>

namespace sconce::testing {

// While it lives, LibTorch allocates CUDA memory with this allocator, asks this guard about CUDA devices and streams, and
// calls `run` for operators on CUDA tensors, which takes the operands from the stack and leaves the results. One at a time.
class CudaRegistrations {
 public:
  using Run = std::function<void(const c10::OperatorHandle& op, torch::jit::Stack& stack)>;

  CudaRegistrations(c10::Allocator& allocator, const c10::impl::DeviceGuardImplInterface& guard, const Run& run);
  ~CudaRegistrations();
  CudaRegistrations(const CudaRegistrations&) = delete;
  CudaRegistrations& operator=(const CudaRegistrations&) = delete;

 private:
  const c10::impl::DeviceGuardImplInterface* const guard_before_;
  torch::Library operators_{torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__};
  torch::Library copies_{torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__};
};

}  // namespace sconce::testing
