#include "tests/support/cuda_on_host.h"

#include "tests/support/cuda_registrations.h"
#include "tests/support/host_call.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/FakeGuardImpl.h>

#include <algorithm>
#include <utility>

namespace sconce::testing {
namespace {

using Guard = c10::impl::FakeGuardImpl<c10::kCUDA>;

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr host = c10::GetCPUAllocator()->allocate(bytes);
    void* const data = host.get();
    return {data, host.release_context(), raw_deleter(), c10::Device(c10::kCUDA, Guard::getDeviceIndex())};
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetCPUAllocator()->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

// Returns a storage on the device over the memory of one on the host, which it keeps alive.
c10::Storage on_device(const c10::Storage& host, c10::Device device) {
  auto owner = std::make_unique<c10::Storage>(host);
  void* const data = owner->mutable_data();
  c10::DataPtr memory(data, owner.release(), [](void* held) { delete static_cast<c10::Storage*>(held); }, device);
  return {c10::Storage::use_byte_size_t(), host.nbytes(), std::move(memory)};
}

at::Tensor copy_of(const at::Tensor& tensor, c10::Allocator* allocator, c10::DispatchKey key) {
  const at::Tensor copy = at::detail::empty_strided_generic(tensor.sizes(), tensor.strides(), allocator,
                                                            c10::DispatchKeySet(key), tensor.scalar_type());
  std::copy_n(static_cast<const char*>(tensor.const_data_ptr()), copy.storage().nbytes(),
              static_cast<char*>(copy.mutable_data_ptr()));
  return copy;
}

struct Registrations {
  HostAllocator allocator;
  Guard guard;
  CudaRegistrations registrations{allocator, guard, [](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
                                    call_on_host(op, stack, {.place = on_device});
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
