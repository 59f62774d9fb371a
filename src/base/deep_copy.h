// DeepCopy: copies of values that share no memory with the originals, and keep the sharing among themselves.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type_base.h>
#include <c10/core/Device.h>
#include <c10/core/TensorOptions.h>

#include <optional>
#include <unordered_map>

namespace sconce {

// Like Python's copy.deepcopy,
//   - one object in two places stays one object,
//   - two views of one storage stay views of one storage, with the same strides and offsets,
//   - leaves that require grad require it again; other tensors lose their gradient graph.
// Sparse, quantized and other tensors without plain strides are cloned one by one. What several calls of `copy` find twice
// is copied once.
class DeepCopy {
 public:
  // Tensors of the copies are on the device, or stay where the originals are.
  explicit DeepCopy(std::optional<c10::Device> device = std::nullopt) : device_(device) {}

  // The copies have the tensor, or the object, itself. Views of the tensor's memory stay views of it.
  void share(const at::Tensor& tensor);
  void share(const c10::intrusive_ptr<c10::ivalue::Object>& object);

  c10::IValue copy(const c10::IValue& value);

 private:
  at::Tensor copy_tensor(const at::Tensor& tensor);
  at::Tensor clone(const at::Tensor& tensor);
  c10::Storage copy_storage(const c10::Storage& storage, const c10::TensorOptions& options);
  c10::IValue copy_tuple(const c10::IValue& value);
  c10::IValue copy_list(const c10::List<c10::IValue>& list, const void* identity);
  c10::IValue copy_dict(const c10::Dict<c10::IValue, c10::IValue>& dict, const void* identity);
  c10::IValue copy_object(const c10::ivalue::Object& object, const void* identity);

  const std::optional<c10::Device> device_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
  std::unordered_map<const void*, c10::IValue> containers_;
};

// Returns the type of a NamedTuple, null for another tuple. LibTorch makes the type of a plain tuple when it is asked, and
// raises where it asks an undefined tensor for its strides. A NamedTuple has its type from the beginning.
c10::TupleTypePtr named_type(const c10::ivalue::Tuple& tuple);

}  // namespace sconce
