// The module and its submodules as objects, and the values of a graph that refer to them.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "load/function_table.h"

#include <ATen/core/ivalue.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sconce {

// The module or a submodule.
using ModuleObject = c10::ivalue::Object;
// An attribute of one object: the object and the slot's number.
using AttributeSlot = std::pair<const ModuleObject*, size_t>;

struct ValueOrder {
  bool operator()(const Value* a, const Value* b) const { return a->id() < b->id(); }
};
// The values of a graph that are the same object of the module in every run, in the order of their creation.
using ObjectMap = std::map<const Value*, const ModuleObject*, ValueOrder>;

// Returns the attribute that a prim::GetAttr reads or a prim::SetAttr writes, if the object is known.
std::optional<AttributeSlot> attribute_slot(const Node& node, const ObjectMap& objects);

class ModuleObjects {
 public:
  // Keeps the module and its submodules alive, those that are replaced later, too.
  explicit ModuleObjects(c10::IValue module);

  const ModuleObject* module() const { return &module_.toObjectRef(); }
  // Every attribute of every object, with its name as seen from the module: "layer1.0.bn.running_mean".
  const std::map<AttributeSlot, std::string>& names() const { return names_; }
  static const c10::IValue& value_of(AttributeSlot slot) { return slot.first->getSlot(slot.second); }

  // Finds an attribute by name; nothing if there is none.
  std::optional<AttributeSlot> find(const std::string& name) const;
  // Visits the attributes of an object and of all objects in it.
  static void for_each_slot_in(const ModuleObject& object, const std::function<void(AttributeSlot)>& visit);

  // Returns the object that the attribute holds in every run. Null if it holds none, or if it may be replaced.
  const ModuleObject* submodule(AttributeSlot slot) const;
  void may_be_replaced(AttributeSlot slot) { submodules_.erase(slot); }

  // Finds the values that are objects of the module. `inputs`: the objects that the graph's first inputs are; null for an
  // input that is another value.
  ObjectMap objects_in(const Graph& graph, c10::ArrayRef<const ModuleObject*> inputs) const;
  // Gives attributes of interface type the class of the object they hold, if they are never replaced, and inlines the calls
  // that become known. Returns whether the graph changed.
  Expected<bool> inline_interface_calls(Graph& graph, c10::ArrayRef<const ModuleObject*> inputs,
                                        FunctionTable& functions) const;

 private:
  void add(const ModuleObject& object, const std::string& prefix);

  c10::IValue module_;
  std::vector<c10::intrusive_ptr<const ModuleObject>> held_;
  std::map<AttributeSlot, std::string> names_;
  std::map<AttributeSlot, const ModuleObject*> submodules_;
};

// Returns the storages and containers that a value refers to. Two values without a common one share no writable memory.
std::vector<const void*> memory_of(const c10::IValue& value);

}  // namespace sconce
