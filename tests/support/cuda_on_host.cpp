#include "tests/support/cuda_on_host.h"

#include "tests/support/cuda_registrations.h"
#include "tests/support/host_call.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/FakeGuardImpl.h>

#include <algorithm>
#include <utility>

namespace sconce::testing {
namespace {

using Guard = c10::impl::FakeGuardImpl<c10::kCUDA>;

at::Tensor copy_of(const at::Tensor& tensor, c10::Allocator* allocator, c10::DispatchKey key) {
  const at::Tensor copy = at::detail::empty_strided_generic(tensor.sizes(), tensor.strides(), allocator,
                                                            c10::DispatchKeySet(key), tensor.scalar_type());
  std::copy_n(static_cast<const char*>(tensor.const_data_ptr()), copy.storage().nbytes(),
              static_cast<char*>(copy.mutable_data_ptr()));
  return copy;
}

struct Registrations {
  HostAllocator allocator{[] { return c10::Device(c10::kCUDA, Guard::getDeviceIndex()); }};
  Guard guard;
  CudaRegistrations registrations{allocator, guard, [](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
                                    call_on_host(op, stack, {.place = storage_over});
                                  }};
};

}  // namespace

CudaOnHost::CudaOnHost() : registrations_(std::make_shared<Registrations>()) {}
CudaOnHost::~CudaOnHost() = default;

at::Tensor CudaOnHost::tensor(const at::Tensor& values, int index) {
  const c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)));
  return copy_of(values, c10::GetAllocator(c10::kCUDA), c10::DispatchKey::CUDA);
}

at::Tensor CudaOnHost::values(const at::Tensor& tensor) {
  return copy_of(tensor, c10::GetCPUAllocator(), c10::DispatchKey::CPU);
}

}  // namespace sconce::testing
