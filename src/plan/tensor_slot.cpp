#include "plan/tensor_slot.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorUtils.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

namespace sconce {
namespace {

c10::DispatchKeySet keys_on(c10::Device device, at::ScalarType dtype) {
  return c10::DispatchKeySet(c10::computeDispatchKey(dtype, c10::kStrided, device));
}

}  // namespace

at::Tensor make_shell(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype, c10::Device device) {
  const c10::InferenceMode normal(false);
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             c10::DataPtr(nullptr, device), nullptr,
                                                             /*resizable=*/false));
  at::Tensor shell =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys_on(device, dtype), c10::scalarTypeToTypeMeta(dtype));
  shell.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return shell;
}

c10::DataPtr allocate_on(c10::Device device, size_t bytes) {
  if (device.is_cpu()) {
    return c10::GetCPUAllocator()->allocate(bytes);
  }
  const c10::DeviceGuard guard(device);
  return c10::GetAllocator(device.type())->allocate(bytes);
}

at::Tensor empty_like_shell(const at::Tensor& shell) {
  if (shell.is_cpu()) {
    return at::detail::empty_strided_cpu(shell.sizes(), shell.strides(), shell.scalar_type());
  }
  const c10::DeviceGuard guard(shell.device());
  return at::detail::empty_strided_generic(shell.sizes(), shell.strides(), c10::GetAllocator(shell.device().type()),
                                           keys_on(shell.device(), shell.scalar_type()), shell.scalar_type());
}

bool have_same_form(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

void reshape_shell(at::Tensor& shell, c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype,
                   c10::Device device) {
  if (!shell.defined() || shell.use_count() != 1 || shell.scalar_type() != dtype || shell.device() != device) {
    shell = make_shell(sizes, strides, dtype, device);
    return;
  }
  c10::TensorImpl& impl = *shell.unsafeGetTensorImpl();
  impl.set_sizes_and_strides(sizes, strides);
  impl.unsafe_storage().unsafeGetStorageImpl()->set_nbytes(
      at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype)));
}

}  // namespace sconce
