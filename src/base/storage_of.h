// storage_of: the memory of a tensor as an identity.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace sconce {

// Returns the storage of a tensor; null if it has none, or hides it. A tensor of a trace hides its storage, and takes
// `has_storage()` for a read of elements.
inline const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace sconce
