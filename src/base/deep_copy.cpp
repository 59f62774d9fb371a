#include "base/deep_copy.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>

#include <vector>

namespace sconce {

c10::TupleTypePtr named_type(const c10::ivalue::Tuple& tuple) {
  try {
    const c10::TupleTypePtr type = tuple.type();
    return type->schema() != nullptr ? type : nullptr;
  } catch (const c10::Error&) {
    return nullptr;
  }
}

namespace {

// A class of C++'s, whose object is in its only slot.
bool has_cpp_class(const c10::ivalue::Object& object) {
  return !object.slots().empty() && object.slots().front().isCapsule();
}

}  // namespace

void DeepCopy::share(const at::Tensor& tensor) {
  tensors_.emplace(tensor.unsafeGetTensorImpl(), tensor);
  if (tensor.has_storage()) {
    storages_.emplace(tensor.storage().unsafeGetStorageImpl(), tensor.storage());
  }
}

void DeepCopy::share(const c10::intrusive_ptr<c10::ivalue::Object>& object) { containers_.emplace(object.get(), object); }

c10::IValue DeepCopy::copy(const c10::IValue& value) {
  if (value.isTensor()) {
    return copy_tensor(value.toTensor());
  }
  // Immutable values, and tasks and their results, are shared.
  if (!value.isPtrType() || value.isString() || value.isComplexDouble() || value.isEnum() || value.isFuture()) {
    return value;
  }
  if (value.isGenerator()) {
    return value.toGenerator().clone();
  }
  if (value.isStorage()) {
    return copy_storage(value.toStorage(), c10::TensorOptions());
  }
  // Registered by identity, so that a container in two places stays one.
  const void* identity = value.internalToPointer();
  if (const auto found = containers_.find(identity); found != containers_.end()) {
    return found->second;
  }
  if (value.isTuple()) {
    return containers_[identity] = copy_tuple(value);
  }
  if (value.isList()) {
    return copy_list(value.toList(), identity);
  }
  if (value.isGenericDict()) {
    return copy_dict(value.toGenericDict(), identity);
  }
  if (value.isObject() && !has_cpp_class(value.toObjectRef())) {
    return copy_object(value.toObjectRef(), identity);
  }
  return containers_[identity] = value.deepcopy();
}

at::Tensor DeepCopy::copy_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  if (const auto found = tensors_.find(tensor.unsafeGetTensorImpl()); found != tensors_.end()) {
    return found->second;
  }
  at::Tensor copied = clone(tensor.detach());
  copied.requires_grad_(tensor.requires_grad() && tensor.is_leaf());
  return tensors_[tensor.unsafeGetTensorImpl()] = copied;
}

at::Tensor DeepCopy::clone(const at::Tensor& tensor) {
  const bool plain = tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_quantized() &&
                     !tensor.is_conj() && !tensor.is_neg() && !tensor.is_meta();
  if (!plain) {
    return device_ ? tensor.to(*device_, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true) : tensor.clone();
  }
  return at::empty({0}, tensor.options().device(device_.value_or(tensor.device())))
      .set_(copy_storage(tensor.storage(), tensor.options()), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

// Copies the whole storage as bytes, whatever its views look like.
c10::Storage DeepCopy::copy_storage(const c10::Storage& storage, const c10::TensorOptions& options) {
  const auto found = storages_.find(storage.unsafeGetStorageImpl());
  if (found != storages_.end()) {
    return found->second;
  }
  const at::Tensor bytes = at::empty({0}, options.device(storage.device()).dtype(c10::kByte)).set_(storage);
  const at::Tensor copied = bytes.to(device_.value_or(storage.device()), c10::kByte, /*non_blocking=*/false, /*copy=*/true);
  return storages_.emplace(storage.unsafeGetStorageImpl(), copied.storage()).first->second;
}

c10::IValue DeepCopy::copy_tuple(const c10::IValue& value) {
  std::vector<c10::IValue> elements;
  for (const c10::IValue& element : value.toTupleRef().elements()) {
    elements.push_back(copy(element));
  }
  const auto type = named_type(value.toTupleRef());
  return type ? c10::ivalue::Tuple::createNamed(std::move(elements), type) : c10::ivalue::Tuple::create(std::move(elements));
}

// Lists, dicts and objects may contain themselves, so they are registered before they are filled.
c10::IValue DeepCopy::copy_list(const c10::List<c10::IValue>& list, const void* identity) {
  c10::impl::GenericList copied(list.elementType());
  containers_[identity] = copied;
  copied.reserve(list.size());
  for (const auto& element : list) {
    copied.push_back(copy(element));
  }
  return copied;
}

c10::IValue DeepCopy::copy_dict(const c10::Dict<c10::IValue, c10::IValue>& dict, const void* identity) {
  c10::impl::GenericDict copied(dict.keyType(), dict.valueType());
  containers_[identity] = copied;
  for (const auto& entry : dict) {
    copied.insert(copy(entry.key()), copy(entry.value()));
  }
  return copied;
}

c10::IValue DeepCopy::copy_object(const c10::ivalue::Object& object, const void* identity) {
  auto copied = object.copy();
  containers_[identity] = copied;
  for (size_t i = 0; i < object.slots().size(); ++i) {
    copied->setSlot(i, copy(object.getSlot(i)));
  }
  return copied;
}

}  // namespace sconce
