#include "trace/bound_tensors.h"

#include "base/storage_of.h"

#include <algorithm>
#include <utility>

namespace sconce {

BoundTensors::BoundTensors(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  for (const at::Tensor& tensor : tensors_) {
    forms_.push_back(form_of(tensor));
    storages_.push_back(forms_.back().storage);
  }
  std::sort(storages_.begin(), storages_.end());
}

BoundTensors::Form BoundTensors::form_of(const at::Tensor& tensor) {
  Form form{storage_of(tensor), 0, tensor.scalar_type(), tensor.requires_grad(), tensor.is_leaf(), {}};
  if (tensor.layout() == c10::kStrided) {
    form.offset = tensor.storage_offset();
    form.sizes_and_strides.append(tensor.sizes().begin(), tensor.sizes().end());
    form.sizes_and_strides.append(tensor.strides().begin(), tensor.strides().end());
  }
  return form;
}

bool BoundTensors::has_form(const at::Tensor& tensor, const Form& form) {
  if (storage_of(tensor) != form.storage || tensor.scalar_type() != form.dtype ||
      tensor.requires_grad() != form.requires_grad || tensor.is_leaf() != form.is_leaf) {
    return false;
  }
  if (tensor.layout() != c10::kStrided) {
    return form.sizes_and_strides.empty();
  }
  const size_t rank = form.sizes_and_strides.size() / 2;
  const auto strides = form.sizes_and_strides.begin() + rank;
  return tensor.storage_offset() == form.offset && static_cast<size_t>(tensor.dim()) == rank &&
         std::equal(form.sizes_and_strides.begin(), strides, tensor.sizes().begin()) &&
         std::equal(strides, form.sizes_and_strides.end(), tensor.strides().begin());
}

bool BoundTensors::hold() const {
  return std::equal(tensors_.begin(), tensors_.end(), forms_.begin(), forms_.end(), has_form);
}

bool BoundTensors::share_memory_with(std::span<const at::Tensor> others) const {
  return std::any_of(others.begin(), others.end(), [this](const at::Tensor& other) {
    const c10::StorageImpl* storage = storage_of(other);
    return storage != nullptr && std::binary_search(storages_.begin(), storages_.end(), storage);
  });
}

}  // namespace sconce
