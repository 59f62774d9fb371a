#include "passes/freeze/module_objects.h"

#include "passes/required/inline_calls.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <unordered_set>

namespace sconce {

std::optional<AttributeSlot> attribute_slot(const Node& node, const ObjectMap& objects) {
  if (node.kind() != prim::GetAttr && node.kind() != prim::SetAttr) {
    return std::nullopt;
  }
  const auto object = objects.find(node.input(0));
  if (object == objects.end()) {
    return std::nullopt;
  }
  const auto slot = object->second->type()->findAttributeSlot(node.attribute_as<std::string>(attr::kName));
  return slot ? std::optional(AttributeSlot(object->second, *slot)) : std::nullopt;
}

// ---- ModuleObjects --------------------------------------------------------------------------------------------------

ModuleObjects::ModuleObjects(c10::IValue module) : module_(std::move(module)) { add(module_.toObjectRef(), ""); }

void ModuleObjects::add(const ModuleObject& object, const std::string& prefix) {
  const auto type = object.type();
  for (size_t slot = 0; slot < object.slots().size(); ++slot) {
    const std::string name = prefix + type->getAttributeName(slot);
    if (!names_.try_emplace({&object, slot}, name).second) {
      return;  // held by two others, and named by the first
    }
    if (const c10::IValue& value = object.getSlot(slot); value.isModule()) {
      held_.push_back(value.toObject());
      submodules_[{&object, slot}] = held_.back().get();
      add(value.toObjectRef(), name + ".");
    }
  }
}

std::optional<AttributeSlot> ModuleObjects::find(const std::string& name) const {
  const ModuleObject* object = module();
  for (size_t begin = 0;;) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const auto slot = object->type()->findAttributeSlot(name.substr(begin, end - begin));
    if (!slot || end == name.size()) {
      return slot ? std::optional(AttributeSlot(object, *slot)) : std::nullopt;
    }
    if (!object->getSlot(*slot).isModule()) {
      return std::nullopt;
    }
    object = &object->getSlot(*slot).toObjectRef();
    begin = end + 1;
  }
}

void ModuleObjects::for_each_slot_in(const ModuleObject& object, const std::function<void(AttributeSlot)>& visit) {
  std::vector<const ModuleObject*> objects = {&object};
  std::unordered_set<const ModuleObject*> seen = {&object};
  while (!objects.empty()) {
    const ModuleObject* next = objects.back();
    objects.pop_back();
    for (size_t slot = 0; slot < next->slots().size(); ++slot) {
      visit({next, slot});
      const c10::IValue& value = next->getSlot(slot);
      if (value.isModule() && seen.insert(&value.toObjectRef()).second) {
        objects.push_back(&value.toObjectRef());
      }
    }
  }
}

const ModuleObject* ModuleObjects::submodule(AttributeSlot slot) const {
  const auto found = submodules_.find(slot);
  return found == submodules_.end() ? nullptr : found->second;
}

ObjectMap ModuleObjects::objects_in(const Graph& graph, c10::ArrayRef<const ModuleObject*> inputs) const {
  ObjectMap objects;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != nullptr) {
      objects[graph.inputs()[i]] = inputs[i];
    }
  }
  for_each_node(graph.body(), [&](Node* node) {
    const auto slot = node->kind() == prim::GetAttr ? attribute_slot(*node, objects) : std::nullopt;
    if (const ModuleObject* object = slot ? submodule(*slot) : nullptr) {
      objects[node->output()] = object;
    }
  });
  return objects;
}

Expected<bool> ModuleObjects::inline_interface_calls(Graph& graph, c10::ArrayRef<const ModuleObject*> inputs,
                                                     FunctionTable& functions) const {
  bool changed = false;
  for (bool found = true; found;) {
    found = false;
    for (const auto& [value, object] : objects_in(graph, inputs)) {
      if (value->type()->kind() == c10::TypeKind::InterfaceType) {
        value->node()->output(value->offset())->set_type(object->type());
        found = true;
      }
    }
    if (found) {
      changed = true;
      if (const auto inlined = inline_calls(graph, functions); !inlined) {
        return inlined.refusal();
      }
    }
  }
  return changed;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

namespace {

void add_memory_of(const at::Tensor& tensor, std::vector<const void*>& memory) {
  if (!tensor.defined()) {
    return;
  }
  if (tensor.has_storage()) {
    memory.push_back(tensor.storage().unsafeGetStorageImpl());
    return;
  }
  memory.push_back(tensor.unsafeGetTensorImpl());
  if (tensor.layout() == c10::kSparse) {
    add_memory_of(tensor._values(), memory);
    add_memory_of(tensor._indices(), memory);
  } else if (tensor.layout() != c10::kStrided && tensor.layout() != c10::kMkldnn) {
    add_memory_of(tensor.values(), memory);
  }
}

}  // namespace

std::vector<const void*> memory_of(const c10::IValue& value) {
  std::vector<const void*> memory;
  std::unordered_set<const void*> seen;
  value.visit([&](const c10::IValue& part) {
    if (part.isTensor()) {
      add_memory_of(part.toTensor(), memory);
      return true;
    }
    if (part.isList() || part.isGenericDict() || part.isObject()) {
      memory.push_back(part.internalToPointer());
      return !seen.insert(memory.back()).second;  // true: seen before, do not visit its elements again
    }
    return false;
  });
  return memory;
}

}  // namespace sconce
