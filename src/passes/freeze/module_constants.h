// Finds the attributes of a module that no call of it can change.
#pragma once

#include "passes/freeze/module_objects.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

struct ModuleAttribute {
  std::optional<c10::IValue> constant;  // the constant; tensors are detached from autograd's graph
  c10::TypePtr type;                    // the constant's type
  std::optional<Refusal> refusal;       // why there is none; empty if it holds a submodule, or is to be preserved
};

// Computed once for all methods of a module, from the module's state at that time. An attribute is a constant if a constant
// can hold its value, and no method or hook
//   - assigns it (prim::SetAttr);
//   - writes it in place, or a view of it. The hidden writes of rule R1 count; code that a constant branch excludes
//     (`if self.training`) does not;
//   - lets it escape: returns it, stores it, passes it to unknown code, or compares its identity;
//   - does one of these to another attribute over the same memory, or to a list, dict or object that holds it.
//
// Not visible here, and so the user's responsibility: writes through script_module(), or through an argument that is one of
// the module's own tensors.
class ModuleConstants {
 public:
  // `preserved`: names of attributes to keep, of submodules to keep with everything in them, or of methods, which are always
  // kept. `functions` must outlive this. Refuses a module in training mode, unknown names, and code that cannot be analyzed.
  static Expected<ModuleConstants> find(const c10::IValue& module, const std::vector<std::string>& preserved,
                                        FunctionTable& functions);

  const ModuleAttribute& attribute(AttributeSlot slot) const { return attributes_.at(slot); }
  const std::string& name(AttributeSlot slot) const { return objects_.names().at(slot); }

  // These two take the graph of a method or hook, whose first input is the module; see ModuleObjects.
  ObjectMap objects_in(const Graph& method) const { return objects_.objects_in(method, {objects_.module()}); }
  Expected<bool> inline_interface_calls(Graph& method) const {
    return objects_.inline_interface_calls(method, {objects_.module()}, *functions_);
  }

 private:
  ModuleConstants(ModuleObjects objects, std::map<AttributeSlot, ModuleAttribute> attributes, FunctionTable& functions)
      : objects_(std::move(objects)), attributes_(std::move(attributes)), functions_(&functions) {}

  ModuleObjects objects_;
  std::map<AttributeSlot, ModuleAttribute> attributes_;
  FunctionTable* functions_;
};

}  // namespace sconce
