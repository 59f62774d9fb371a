// The objects that a module is made of, and which of them the values of a graph are.
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
// An attribute of one object: the object and the number of its slot.
using AttributeSlot = std::pair<const ModuleObject*, size_t>;

struct ValueOrder {
  bool operator()(const Value* a, const Value* b) const { return a->id() < b->id(); }
};
// The values of a graph that are objects of the module, in every run; in the order in which they were made.
using ObjectMap = std::map<const Value*, const ModuleObject*, ValueOrder>;

// What is read by a prim::GetAttr, or written by a prim::SetAttr, of a known object.
std::optional<AttributeSlot> attribute_slot(const Node& node, const ObjectMap& objects);

class ModuleObjects {
 public:
  // Keeps the module alive.
  explicit ModuleObjects(c10::IValue module);

  const ModuleObject* module() const { return &module_.toObjectRef(); }
  // Every attribute of every object, with its name as seen from the module: "layer1.0.bn.running_mean".
  const std::map<AttributeSlot, std::string>& names() const { return names_; }
  static const c10::IValue& value_of(AttributeSlot slot) { return slot.first->getSlot(slot.second); }

  // The attribute of the name; nothing when there is none.
  std::optional<AttributeSlot> find(const std::string& name) const;
  // Of an object and of all objects in it.
  static void for_each_slot_in(const ModuleObject& object, const std::function<void(AttributeSlot)>& visit);

  // The object that the attribute holds whenever it is read; null when it holds none, or may come to hold another.
  const ModuleObject* submodule(AttributeSlot slot) const;
  void may_be_replaced(AttributeSlot slot) { submodules_.erase(slot); }

  // `inputs`: the objects that the graph's first inputs are, null for any other value.
  ObjectMap objects_in(const Graph& graph, c10::ArrayRef<const ModuleObject*> inputs) const;
  // An attribute whose type is an interface, and that is never replaced, gets the class of the object that it holds; the
  // calls that are known by that are inlined. Returns whether the graph changed.
  Expected<bool> inline_interface_calls(Graph& graph, c10::ArrayRef<const ModuleObject*> inputs,
                                        FunctionTable& functions) const;

 private:
  void add(const ModuleObject& object, const std::string& prefix);

  c10::IValue module_;
  std::map<AttributeSlot, std::string> names_;
  std::map<AttributeSlot, const ModuleObject*> submodules_;
};

// The storages and containers behind a value: two values without a common one share nothing that can be written.
std::vector<const void*> memory_of(const c10::IValue& value);

}  // namespace sconce
