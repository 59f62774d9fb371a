#include "tests/support/cuda_on_host.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/FakeGuardImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>
#include <vector>

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

at::Tensor tensor_over(c10::Storage storage, c10::DispatchKey key, const at::Tensor& form) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), form.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(form.sizes(), form.strides(), form.storage_offset());
  return tensor;
}

// The operands of one call on the host, and the tensors on the device that they stand for.
class HostCall {
 public:
  c10::IValue to_host(const c10::IValue& value) {
    if (value.isDevice() && value.toDevice().is_cuda()) {
      device_ = with_index(value.toDevice());
      return c10::Device(c10::kCPU);
    }
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda()) {
      device_ = value.toTensor().device();
      return host_tensor(value.toTensor());
    }
    if (value.isList()) {
      c10::List<c10::IValue> list = value.toList().copy();
      for (size_t i = 0; i < list.size(); ++i) {
        list.set(i, to_host(list.get(i)));
      }
      return list;
    }
    return value;
  }

  c10::IValue to_device(const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) {
      return device_tensor(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& element : value.toTensorVector()) {
        list.push_back(device_tensor(element));
      }
      return list;
    }
    return value;
  }

 private:
  struct Pair {
    at::Tensor device;
    at::Tensor host;
  };

  static c10::Device with_index(c10::Device device) {
    return device.has_index() ? device : c10::Device(c10::kCUDA, Guard::getDeviceIndex());
  }

  at::Tensor host_tensor(const at::Tensor& tensor) {
    c10::Storage storage;
    for (const Pair& pair : pairs_) {
      storage = pair.device.is_alias_of(tensor) ? pair.host.storage() : storage;
    }
    if (!storage) {
      c10::DataPtr data(const_cast<void*>(tensor.storage().data()), c10::Device(c10::kCPU));
      storage = c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), std::move(data));
    }
    pairs_.push_back({tensor, tensor_over(std::move(storage), c10::DispatchKey::CPU, tensor)});
    return pairs_.back().host;
  }

  at::Tensor device_tensor(const at::Tensor& host) {
    for (const Pair& pair : pairs_) {
      if (pair.host.is_same(host)) {
        return pair.device;
      }
    }
    for (const Pair& pair : pairs_) {
      if (pair.host.is_alias_of(host)) {
        return tensor_over(pair.device.storage(), c10::DispatchKey::CUDA, host);
      }
    }
    auto owner = std::make_unique<c10::Storage>(host.storage());
    void* const data = owner->mutable_data();
    const size_t bytes = owner->nbytes();
    c10::DataPtr memory(data, owner.release(), [](void* held) { delete static_cast<c10::Storage*>(held); }, device_);
    return tensor_over(c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(memory)), c10::DispatchKey::CUDA,
                       host);
  }

  std::vector<Pair> pairs_;
  c10::Device device_ = with_index(c10::kCUDA);
};

// Runs the operator's kernel for the CPU.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  HostCall call;
  const auto operands = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  std::transform(operands, stack->end(), operands, [&](const c10::IValue& value) { return call.to_host(value); });
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  const auto results = stack->end() - static_cast<std::ptrdiff_t>(op.schema().returns().size());
  std::transform(results, stack->end(), results, [&](const c10::IValue& value) { return call.to_device(value); });
}

at::Tensor copy_of(const at::Tensor& tensor, c10::Allocator* allocator, c10::DispatchKey key) {
  const at::Tensor copy = at::detail::empty_strided_generic(tensor.sizes(), tensor.strides(), allocator,
                                                            c10::DispatchKeySet(key), tensor.scalar_type());
  std::copy_n(static_cast<const char*>(tensor.const_data_ptr()), copy.storage().nbytes(),
              static_cast<char*>(copy.mutable_data_ptr()));
  return copy;
}

struct Registrations {
  Registrations() {
    c10::SetAllocator(c10::kCUDA, &allocator);
    c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)].store(&guard);
    operators.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
    // It has one kernel for all devices, which asks for the tables of the device.
    copies.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  }
  ~Registrations() {
    c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)].store(nullptr);
    c10::SetAllocator(c10::kCUDA, nullptr);
  }

  HostAllocator allocator;
  Guard guard;
  torch::Library operators{torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__};
  torch::Library copies{torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__};
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
