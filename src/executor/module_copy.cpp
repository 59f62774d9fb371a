#include "executor/module_copy.h"

#include "base/outside_inference_mode.h"
#include "base/storage_of.h"
#include "base/tensors_in.h"

#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace sconce {
namespace {

class Copier {
 public:
  // `shared`: tensors that stay the same, and so does their memory.
  explicit Copier(const std::vector<at::Tensor>& shared) {
    for (const at::Tensor& tensor : shared) {
      tensors_.emplace(tensor.unsafeGetTensorImpl(), tensor);
      memory_.emplace(storage_of(tensor), tensor);
    }
  }

  // The object stays the same where it is found.
  void keep(const c10::intrusive_ptr<c10::ivalue::Object>& object) { made_.emplace(object.get(), object); }

  c10::intrusive_ptr<c10::ivalue::Object> object(const c10::intrusive_ptr<c10::ivalue::Object>& original) {
    const c10::ClassTypePtr type = original->type();
    auto copy =
        c10::ivalue::Object::create(c10::StrongTypePtr(original->compilation_unit(), type), original->slots().size());
    made_.emplace(original.get(), copy);
    for (size_t slot = 0; slot < original->slots().size(); ++slot) {
      copy->setSlot(slot, copied(original->slots()[slot]));
    }
    return copy;
  }

  c10::IValue copied(const c10::IValue& value) {
    if (value.isTensor()) {
      return tensor(value.toTensor());
    }
    if (value.isTuple()) {
      return tuple(value);
    }
    if (!value.isObject() && !value.isList() && !value.isGenericDict()) {
      // Numbers, texts and the like cannot change. What remains has a copy of its own, or cannot be copied.
      return value.isPtrType() && !value.isString() ? value.deepcopy() : value;
    }
    const auto found = made_.find(value.internalToPointer());
    if (found != made_.end()) {
      return found->second;
    }
    if (value.isObject()) {
      const c10::intrusive_ptr<c10::ivalue::Object> original = value.toObject();
      return has_cpp_class(*original) ? value.deepcopy() : c10::IValue(object(original));
    }
    return value.isList() ? list(value) : dict(value);
  }

 private:
  // A class of C++'s, whose object is in its only slot.
  static bool has_cpp_class(const c10::ivalue::Object& object) {
    return !object.slots().empty() && object.slots().front().isCapsule();
  }

  // Tensors that share memory share it again.
  at::Tensor tensor(const at::Tensor& original) {
    if (!original.defined()) {
      return original;
    }
    const auto found = tensors_.find(original.unsafeGetTensorImpl());
    if (found != tensors_.end()) {
      return found->second;
    }
    at::Tensor copy;
    if (original.layout() == c10::kStrided && !original.is_quantized() && storage_of(original) != nullptr) {
      at::Tensor& memory = memory_[storage_of(original)];
      if (!memory.defined()) {
        const auto bytes = static_cast<int64_t>(original.storage().nbytes());
        memory = at::empty({0}, original.options().dtype(at::kByte)).set_(original.storage(), 0, {bytes}, {1}).clone();
      }
      copy = at::empty({0}, original.options())
                 .set_(memory.storage(), original.storage_offset(), original.sizes(), original.strides());
      copy._set_conj(original.is_conj());
      copy._set_neg(original.is_neg());
    } else {
      copy = original.detach().clone();
    }
    copy.set_requires_grad(original.requires_grad());
    tensors_.emplace(original.unsafeGetTensorImpl(), copy);
    return copy;
  }

  c10::IValue tuple(const c10::IValue& value) {
    std::vector<c10::IValue> elements;
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      elements.push_back(copied(element));
    }
    const auto type = value.type()->expect<c10::TupleType>();
    return type->schema() != nullptr ? c10::ivalue::Tuple::createNamed(std::move(elements), type)
                                     : c10::ivalue::Tuple::create(std::move(elements));
  }

  c10::IValue list(const c10::IValue& value) {
    const c10::List<c10::IValue> original = value.toList();
    c10::impl::GenericList copy(original.elementType());
    made_.emplace(value.internalToPointer(), copy);
    for (const c10::IValue& element : original) {
      copy.push_back(copied(element));
    }
    return copy;
  }

  c10::IValue dict(const c10::IValue& value) {
    const auto original = value.toGenericDict();
    c10::impl::GenericDict copy(original.keyType(), original.valueType());
    made_.emplace(value.internalToPointer(), copy);
    for (const auto& entry : original) {
      copy.insert(copied(entry.key()), copied(entry.value()));
    }
    return copy;
  }

  std::unordered_map<const void*, c10::IValue> made_;  // by the original object, list or dict
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors_;
  std::unordered_map<const c10::StorageImpl*, at::Tensor> memory_;  // all of a storage
};

}  // namespace

torch::jit::Module copy_of(const torch::jit::Module& module, bool shares_weights) {
  const torch::autograd::AutoGradMode no_grad(false);
  const OutsideInferenceMode normal;
  std::vector<at::Tensor> shared;
  if (shares_weights) {
    for (const at::Tensor& parameter : module.parameters()) {
      shared.push_back(parameter);
    }
  }
  return torch::jit::Module(Copier(shared).object(module._ivalue()));
}

c10::IValue copy_of(const c10::IValue& value) {
  const torch::autograd::AutoGradMode no_grad(false);
  return Copier({}).copied(value);
}

// Lists and dicts may hold parameters, too.
void copy_parameters(torch::jit::Module& module) {
  const torch::autograd::AutoGradMode no_grad(false);
  const OutsideInferenceMode normal;
  std::unordered_set<const c10::StorageImpl*> memory;
  for (const at::Tensor& parameter : module.parameters()) {
    memory.insert(storage_of(parameter));
  }
  std::vector<at::Tensor> others = tensors_in(module._ivalue());
  std::erase_if(others, [&](const at::Tensor& tensor) { return memory.contains(storage_of(tensor)); });
  Copier copier(others);
  for (const torch::jit::Module& each : module.modules()) {
    copier.keep(each._ivalue());
  }
  for (const torch::jit::Module& each : module.modules()) {
    const c10::intrusive_ptr<c10::ivalue::Object> object = each._ivalue();
    for (size_t slot = 0; slot < object->slots().size(); ++slot) {
      object->setSlot(slot, copier.copied(object->getSlot(slot)));
    }
  }
}

}  // namespace sconce
