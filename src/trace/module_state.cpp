#include "trace/module_state.h"

#include "trace/tracer.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

// Returns the elements of a container: of a dict, keys and values in turn. Nothing for another value.
std::optional<std::vector<c10::IValue>> elements_of(const c10::IValue& value) {
  std::vector<c10::IValue> elements;
  if (value.isTuple()) {
    const auto& tuple = value.toTupleRef().elements();
    elements.assign(tuple.begin(), tuple.end());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      elements.push_back(element);
    }
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      elements.push_back(entry.key());
      elements.push_back(entry.value());
    }
  } else {
    return std::nullopt;
  }
  return elements;
}

// Containers are copied: a module may change its own in place.
c10::IValue copy_of(const c10::IValue& value) {
  return with_each_tensor(value, [](const at::Tensor& tensor) { return tensor; });
}

// Compares two values, tensors by `same_tensors` and objects by identity.
bool are_equal(const c10::IValue& a, const c10::IValue& b,
               c10::function_ref<bool(const at::Tensor&, const at::Tensor&)> same_tensors) {
  if (a.isTensor() || b.isTensor()) {
    return a.isTensor() && b.isTensor() && same_tensors(a.toTensor(), b.toTensor());
  }
  if (a.isObject() || b.isObject()) {
    return a.is(b);
  }
  const auto elements = elements_of(a);
  const auto others = elements_of(b);
  if (!elements || !others) {
    return !elements && !others && a == b;
  }
  return std::equal(elements->begin(), elements->end(), others->begin(), others->end(),
                    [&](const c10::IValue& x, const c10::IValue& y) { return are_equal(x, y, same_tensors); });
}

bool is_of_trace(const c10::IValue& value) {
  if (value.isTuple()) {
    return std::ranges::any_of(value.toTupleRef().elements(), is_of_trace);
  }
  return value.isSymInt() || value.isSymFloat() || (value.isTensor() && TraceTensor::of(value.toTensor()) != nullptr);
}

c10::IValue handed_back(const c10::IValue& value) {
  if (value.isTuple()) {
    return with_each_tensor(value, [](const at::Tensor& tensor) {
      return TraceTensor::of(tensor) != nullptr ? real_of(tensor).detach() : tensor;
    });
  }
  return value.isTensor() ? real_of(value.toTensor()).detach() : without_trace(value);
}

// Returns whether a container that the value is has changed.
bool hand_back_elements(const c10::IValue& value) {
  bool changed = false;
  if (value.isList()) {
    c10::List<c10::IValue> list = value.toList();
    for (size_t i = 0; i < list.size(); ++i) {
      const c10::IValue element = list.get(i);
      if (is_of_trace(element)) {
        list.set(i, handed_back(element));
        changed = true;
      } else {
        changed = hand_back_elements(element) || changed;
      }
    }
  } else if (value.isGenericDict()) {
    auto dict = value.toGenericDict();
    for (const auto& entry : dict) {
      if (is_of_trace(entry.value())) {
        entry.setValue(handed_back(entry.value()));
        changed = true;
      } else {
        changed = hand_back_elements(entry.value()) || changed;
      }
    }
  }
  return changed;
}

bool hand_back(c10::ivalue::Object& object, std::unordered_set<c10::ivalue::Object*>& seen) {
  bool changed = false;
  if (!seen.insert(&object).second) {
    return false;
  }
  for (size_t slot = 0; slot < object.slots().size(); ++slot) {
    const c10::IValue value = object.getSlot(slot);
    if (value.isObject()) {
      changed = hand_back(*value.toObject(), seen) || changed;
    } else if (is_of_trace(value)) {
      object.setSlot(slot, handed_back(value));
      changed = true;
    } else {
      changed = hand_back_elements(value) || changed;
    }
  }
  return changed;
}

}  // namespace

bool replace_traced_values(c10::ivalue::Object& module) {
  std::unordered_set<c10::ivalue::Object*> seen;
  return hand_back(module, seen);
}

ModuleState::ModuleState(const c10::intrusive_ptr<c10::ivalue::Object>& module) : module_(module.get()) { add(module); }

void ModuleState::add(const c10::intrusive_ptr<c10::ivalue::Object>& object) {
  if (std::find(objects_.begin(), objects_.end(), object) != objects_.end()) {
    return;
  }
  objects_.push_back(object);
  for (size_t slot = 0; slot < object->slots().size(); ++slot) {
    const c10::IValue& value = object->getSlot(slot);
    const auto note_mark = [this](const at::Tensor& tensor) {
      marks_.emplace_back(tensor, tensor.requires_grad());
      return tensor;
    };
    attributes_.push_back({object.get(), slot, with_each_tensor(value, note_mark), nullptr});
    if (value.isObject()) {
      add(value.toObject());
    }
  }
}

bool ModuleState::holds() const {
  const auto is_marked_as_before = [](const auto& mark) { return mark.first.requires_grad() == mark.second; };
  return std::ranges::all_of(marks_, is_marked_as_before) &&
         std::ranges::all_of(attributes_, [](const Attribute& attribute) {
           const c10::IValue& now = attribute.object->getSlot(attribute.slot);
           return attribute.released != nullptr
                      ? now.isObject() && &now.toObjectRef() == attribute.released
                      : are_equal(now, attribute.value,
                                  [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
         });
}

void ModuleState::release_objects() {
  for (Attribute& attribute : attributes_) {
    if (attribute.value.isObject()) {
      attribute.released = &attribute.value.toObjectRef();
      attribute.value = c10::IValue();
    }
  }
  objects_.clear();
}

void ModuleState::restore() const {
  for (const Attribute& attribute : attributes_) {
    const bool is_same = are_equal(attribute.object->getSlot(attribute.slot), attribute.value,
                                   [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
    if (!is_same) {
      attribute.object->setSlot(attribute.slot, copy_of(attribute.value));
    }
  }
}

c10::IValue with_each_tensor(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> visit) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? visit(value.toTensor()) : value;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      elements.push_back(with_each_tensor(element, visit));
    }
    const IgnoredSizes ignored;  // LibTorch makes the type of a tuple without a name of the sizes of its elements
    const auto type = value.type()->expect<c10::TupleType>();
    return type->schema() != nullptr ? c10::ivalue::Tuple::createNamed(std::move(elements), type)
                                     : c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isList()) {
    const c10::List<c10::IValue> list = value.toList();
    c10::impl::GenericList copy(list.elementType());
    for (const c10::IValue& element : list) {
      copy.push_back(with_each_tensor(element, visit));
    }
    return copy;
  }
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    c10::impl::GenericDict copy(dict.keyType(), dict.valueType());
    for (const auto& entry : dict) {
      copy.insert(entry.key(), with_each_tensor(entry.value(), visit));
    }
    return copy;
  }
  return value;
}

bool have_equal_structure(const c10::IValue& a, const c10::IValue& b) {
  return are_equal(a, b, [](const at::Tensor&, const at::Tensor&) { return true; });
}

}  // namespace sconce
