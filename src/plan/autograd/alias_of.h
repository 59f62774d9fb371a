// alias_of: another tensor object over the memory of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

namespace sconce {

// Returns a tensor object of its own over the same memory, with the same version and without history, that is no view.
inline at::Tensor alias_of(const at::Tensor& tensor) {
  const at::TensorImpl& of = *tensor.unsafeGetTensorImpl();
  return at::Tensor(of.shallow_copy_and_detach(of.version_counter(), /*allow_tensor_metadata_change=*/true));
}

}  // namespace sconce
