#include "trace/bound_tensors.h"

#include "base/storage_of.h"

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

bool is_strided(const at::Tensor& tensor) { return tensor.defined() && tensor.layout() == c10::kStrided; }

}  // namespace

BoundTensors::BoundTensors(Tensors tensors, Tensors arguments) : key_(key_of(arguments, tensors)) {
  bind(tensors, arguments);
}

// The sizes of arguments are in the key of the recording, which may leave them open.
TraceKey BoundTensors::key_of(Tensors arguments, Tensors tensors) {
  std::vector<at::Tensor> all(arguments.begin(), arguments.end());
  all.insert(all.end(), tensors.begin(), tensors.end());
  const auto open = static_cast<std::ptrdiff_t>(trace_key_parts(arguments).sizes.size());
  TraceKeyParts key = trace_key_parts(all);
  key.structure.insert(key.structure.end(), key.sizes.begin() + open, key.sizes.end());
  return std::move(key.structure);
}

void BoundTensors::bind(Tensors tensors, Tensors arguments) {
  forms_.clear();
  storages_.clear();
  for (const at::Tensor& tensor : tensors) {
    forms_.push_back(form_of(tensor));
    storages_.push_back(forms_.back().storage);
  }
  std::ranges::sort(storages_);
  are_apart_ = !share_memory_with(arguments);
}

BoundTensors::Form BoundTensors::form_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return {tensor.unsafeGetTensorImpl(), nullptr, 0, 0, 0, {}};
  }
  Form form{tensor.unsafeGetTensorImpl(), storage_of(tensor), tensor_kind(tensor), tensor.key_set().raw_repr(), 0, {}};
  if (is_strided(tensor)) {
    form.offset = tensor.storage_offset();
    form.sizes_and_strides.append(tensor.sizes().begin(), tensor.sizes().end());
    form.sizes_and_strides.append(tensor.strides().begin(), tensor.strides().end());
  }
  return form;
}

bool BoundTensors::has_form(const at::Tensor& tensor, const Form& form) {
  if (tensor.unsafeGetTensorImpl() != form.tensor || !tensor.defined()) {
    return tensor.unsafeGetTensorImpl() == form.tensor;
  }
  if (storage_of(tensor) != form.storage || tensor_kind(tensor) != form.kind ||
      tensor.key_set().raw_repr() != form.dispatch) {
    return false;
  }
  if (!is_strided(tensor)) {
    return form.sizes_and_strides.empty();
  }
  const size_t rank = form.sizes_and_strides.size() / 2;
  const auto strides = form.sizes_and_strides.begin() + rank;
  return tensor.storage_offset() == form.offset && static_cast<size_t>(tensor.dim()) == rank &&
         std::equal(form.sizes_and_strides.begin(), strides, tensor.sizes().begin()) &&
         std::equal(strides, form.sizes_and_strides.end(), tensor.strides().begin());
}

bool BoundTensors::hold(Tensors tensors, Tensors arguments) const {
  return are_apart_ && std::equal(tensors.begin(), tensors.end(), forms_.begin(), forms_.end(), has_form) &&
         !share_memory_with(arguments);
}

bool BoundTensors::rebind(Tensors tensors, Tensors arguments) {
  const bool is_served = key_of(arguments, tensors) == key_;
  if (is_served) {
    bind(tensors, arguments);
  }
  return is_served;
}

bool BoundTensors::share_memory_with(Tensors arguments) const {
  return std::ranges::any_of(arguments, [this](const at::Tensor& argument) {
    const void* const storage = storage_of(argument);
    return storage != nullptr && std::ranges::binary_search(storages_, storage);
  });
}

}  // namespace sconce
