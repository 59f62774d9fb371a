#include "tests/support/host_call.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

std::ptrdiff_t operand_count(const c10::OperatorHandle& op) {
  return static_cast<std::ptrdiff_t>(op.schema().arguments().size());
}

bool have_same_form(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.storage_offset() == b.storage_offset();
}

// The tensors of one call on the device, and those on the host that stand for them.
class StandIns {
 public:
  explicit StandIns(const HostMemory& memory) : memory_(memory) {}

  c10::IValue to_host(const c10::IValue& value) {
    if (value.isDevice() && value.toDevice().type() == memory_.device) {
      device_ = value.toDevice().has_index() ? value.toDevice() : device_;
      return c10::Device(c10::kCPU);
    }
    if (value.isTensor() && value.toTensor().defined()) {
      return to_host(value.toTensor());
    }
    if (value.isStorage() && value.toStorage().device_type() == memory_.device) {
      return host_storage(value.toStorage());
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

  // Gives operands the forms and the memory that their stand-ins have after the call.
  void update_operands() {
    for (size_t i = 0; i < storages_.size(); ++i) {
      if (storages_[i].host.data() != storages_[i].data) {
        const c10::Storage moved = memory_.place(storages_[i].host, device_);
        storages_[i].device.set_data_ptr(std::move(moved.unsafeGetStorageImpl()->mutable_data_ptr()));
        storages_[i].device.set_nbytes(moved.nbytes());
      }
    }
    for (const Operand& operand : operands_) {
      c10::TensorImpl* const impl = operand.device.unsafeGetTensorImpl();
      const c10::Storage& storage = device_storage(operand.host.storage());
      if (!impl->storage().is_alias_of(storage)) {
        impl->set_storage_keep_dtype(storage);
      }
      if (!have_same_form(operand.device, operand.host)) {
        impl->set_sizes_and_strides(operand.host.sizes(), operand.host.strides(), operand.host.storage_offset());
      }
    }
  }

  c10::IValue to_device(const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) {
      return to_device(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& element : value.toTensorVector()) {
        list.push_back(to_device(element));
      }
      return list;
    }
    return value;
  }

 private:
  struct Operand {
    at::Tensor device;
    at::Tensor host;
  };
  struct StorageOf {
    c10::Storage device;
    c10::Storage host;
    const void* data;  // of `host` before the call
  };

  at::Tensor to_host(const at::Tensor& tensor) {
    if (tensor.device().type() != memory_.device) {
      passed_.push_back(tensor);
      return tensor;
    }
    device_ = tensor.device();
    for (const Operand& operand : operands_) {
      if (operand.device.is_same(tensor)) {
        return operand.host;
      }
    }
    operands_.push_back({tensor, tensor_over(host_storage(tensor.storage()), tensor)});
    return operands_.back().host;
  }

  at::Tensor to_device(const at::Tensor& host) {
    for (const Operand& operand : operands_) {
      if (operand.host.is_same(host)) {
        return operand.device;
      }
    }
    for (const at::Tensor& tensor : passed_) {
      if (tensor.is_alias_of(host)) {
        return host;
      }
    }
    // A view is an inference tensor if its base is one.
    const bool is_view_of_normal = std::any_of(operands_.begin(), operands_.end(), [&](const Operand& operand) {
      return operand.host.is_alias_of(host) && !operand.device.is_inference();
    });
    const c10::InferenceMode mode(c10::InferenceMode::is_enabled() && !is_view_of_normal);
    return tensor_over(device_storage(host.storage()), host);
  }

  c10::Storage host_storage(const c10::Storage& device) {
    for (const StorageOf& each : storages_) {
      if (each.device.is_alias_of(device)) {
        return each.host;
      }
    }
    c10::Allocator* const allocator = c10::GetCPUAllocator();
    c10::DataPtr data(const_cast<void*>(device.data()), c10::Device(c10::kCPU));
    if (memory_.reads_zeros) {
      data = allocator->allocate(device.nbytes());
      std::memset(data.get(), 0, device.nbytes());
    }
    c10::Storage host(c10::Storage::use_byte_size_t(), device.nbytes(), std::move(data), allocator, /*resizable=*/true);
    storages_.push_back({device, host, host.data()});
    return host;
  }

  const c10::Storage& device_storage(const c10::Storage& host) {
    for (const StorageOf& each : storages_) {
      if (each.host.is_alias_of(host)) {
        return each.device;
      }
    }
    storages_.push_back({memory_.place(host, device_), host, host.data()});
    return storages_.back().device;
  }

  const HostMemory& memory_;
  std::vector<Operand> operands_;
  std::vector<StorageOf> storages_;
  std::vector<at::Tensor> passed_;
  c10::Device device_ =
      memory_.device == c10::kCPU ? c10::Device(c10::kCPU) : c10::impl::VirtualGuardImpl(memory_.device).getDevice();
};

}  // namespace

at::Tensor tensor_over(c10::Storage storage, const at::Tensor& form) {
  const c10::DispatchKey key = c10::computeDispatchKey(std::nullopt, std::nullopt, storage.device());
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), form.dtype());
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(form.sizes(), form.strides(), form.storage_offset());
  impl->_set_conj(form.is_conj());
  impl->_set_neg(form.is_neg());
  if (form.unsafeGetTensorImpl()->is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  return tensor;
}

c10::Storage borrowed_storage(const void* data, size_t bytes, c10::Device device) {
  return {c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(const_cast<void*>(data), device)};
}

torch::jit::Stack borrowed_operands(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::vector<std::pair<c10::Storage, c10::Storage>> storages;  // of the device, of the host
  const std::function<c10::IValue(const c10::IValue&)> borrowed = [&](const c10::IValue& value) -> c10::IValue {
    if (value.isDevice()) {
      return c10::Device(c10::kCPU);
    }
    if (value.isList()) {
      c10::List<c10::IValue> list = value.toList().copy();
      for (size_t i = 0; i < list.size(); ++i) {
        list.set(i, borrowed(list.get(i)));
      }
      return list;
    }
    const bool is_tensor = value.isTensor() && value.toTensor().defined();
    if (!is_tensor && !value.isStorage()) {
      return value;
    }
    if (is_tensor && value.toTensor().is_cpu()) {
      const at::Tensor copy = value.toTensor().clone();
      if (value.toTensor().unsafeGetTensorImpl()->is_wrapped_number()) {
        copy.unsafeGetTensorImpl()->set_wrapped_number(true);
      }
      return copy;
    }
    const c10::Storage& own = is_tensor ? value.toTensor().storage() : value.toStorage();
    const auto known =
        std::find_if(storages.begin(), storages.end(), [&](const auto& e) { return e.first.is_alias_of(own); });
    const c10::Storage host =
        known != storages.end() ? known->second : borrowed_storage(own.data(), own.nbytes(), c10::kCPU);
    storages.emplace_back(own, host);
    return is_tensor ? c10::IValue(tensor_over(host, value.toTensor())) : c10::IValue(host);
  };
  torch::jit::Stack operands(stack.end() - operand_count(op), stack.end());
  std::transform(operands.begin(), operands.end(), operands.begin(), borrowed);
  return operands;
}

c10::DataPtr HostAllocator::allocate(size_t bytes) {
  c10::DataPtr host = c10::GetCPUAllocator()->allocate(bytes);
  void* const data = host.get();
  return {data, host.release_context(), raw_deleter(), current_()};
}

c10::DeleterFnPtr HostAllocator::raw_deleter() const { return c10::GetCPUAllocator()->raw_deleter(); }

c10::Storage storage_over(const c10::Storage& host, c10::Device device) {
  auto owner = std::make_unique<c10::Storage>(host);
  void* const data = owner->mutable_data();
  c10::DataPtr memory(data, owner.release(), [](void* held) { delete static_cast<c10::Storage*>(held); }, device);
  return {c10::Storage::use_byte_size_t(), host.nbytes(), std::move(memory), c10::GetAllocator(device.type()),
          /*resizable=*/true};
}

void call_on_host(const c10::OperatorHandle& op, torch::jit::Stack& stack, const HostMemory& memory) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  StandIns stand_ins(memory);
  const auto operands = stack.end() - operand_count(op);
  std::transform(operands, stack.end(), operands, [&](const c10::IValue& value) { return stand_ins.to_host(value); });
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  stand_ins.update_operands();
  const auto results = stack.end() - static_cast<std::ptrdiff_t>(op.schema().returns().size());
  std::transform(results, stack.end(), results, [&](const c10::IValue& value) { return stand_ins.to_device(value); });
}

}  // namespace sconce::testing
