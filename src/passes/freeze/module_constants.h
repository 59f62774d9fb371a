// Which attributes of a module nobody changes, whatever is called of it.
#pragma once

#include "passes/freeze/module_objects.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

struct ModuleAttribute {
  std::optional<c10::IValue> constant;  // what it is, for good; a tensor detached from autograd's graph
  c10::TypePtr type;                    // of that
  std::optional<Refusal> refusal;       // why it is no constant; nothing when it holds a submodule, or is to be preserved
};

// Found once for all methods of a module, from the module as it is then. An attribute is a constant if a constant can hold
// its value, and no call of any method or hook can change it or hand it out:
//
//   written     no prim::SetAttr of it; no operator in place on it or on a view of it, the hidden writes of rule R1 among
//               them. What a branch on a constant rules out (`if self.training`) is not counted.
//   given away  it is not returned, stored or given to code that nobody knows, and nobody asks which object it is
//   shared      no attribute over the same memory is any of these, or a list, dict or object that holds it
//
// What nobody can see is the user's affair: writes from outside, through script_module() or an argument that is the module's
// own tensor.
class ModuleConstants {
 public:
  // `preserved`: names of attributes that stay attributes, of submodules with all that is in them, or of methods, which
  // stay in any case. `functions` outlives this. Refuses a module in training mode, unknown names, and code that cannot be
  // looked into.
  static Expected<ModuleConstants> find(const c10::IValue& module, const std::vector<std::string>& preserved,
                                        FunctionTable& functions);

  const ModuleAttribute& attribute(AttributeSlot slot) const { return attributes_.at(slot); }
  const std::string& name(AttributeSlot slot) const { return objects_.names().at(slot); }

  // Of a method or hook, whose first input is the module.
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
