// ModuleState: what a recorded step has read of a module without operators.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <utility>
#include <vector>

namespace sconce {

// The attributes of a module, its submodules and other objects in it. A recorded step holds for the module as long as they
// are the same: tensors and objects by identity, numbers and strings by value, containers by contents; and as long as the
// same tensors require a gradient.
class ModuleState {
 public:
  explicit ModuleState(const c10::intrusive_ptr<c10::ivalue::Object>& module);
  // Returns whether no attribute has changed. The contents of tensors do not count. Requires that the module still exists.
  bool holds() const;
  // Gives attributes that have changed their values back.
  void restore() const;

  // Stops keeping the module and its submodules alive. An object keeps the code of its class, which may keep whoever has
  // this state. `restore` must not be called after it.
  void release_objects();
  // Returns whether this is the state of that module.
  bool is_of(const c10::ivalue::Object& module) const { return module_ == &module; }
  const c10::ivalue::Object* module() const { return module_; }

 private:
  struct Attribute {
    c10::ivalue::Object* object;
    size_t slot;
    c10::IValue value;
    const c10::ivalue::Object* released;  // an object that was the value; else null
  };
  void add(const c10::intrusive_ptr<c10::ivalue::Object>& object);

  // A module that was made at the address of a destroyed one has the same state only if all its attributes are the same.
  const c10::ivalue::Object* const module_;
  std::vector<c10::intrusive_ptr<c10::ivalue::Object>> objects_;  // none after `release_objects`
  // Those of an object follow the attribute that it was found in. So `holds` reads an object only after it has seen that the
  // object is still there.
  std::vector<Attribute> attributes_;
  std::vector<std::pair<at::Tensor, bool>> marks_;  // tensors, and whether they require a gradient
};

// Replaces traced tensors and sizes in module attributes, also in lists and dicts, by their concrete values.
// Returns whether there were any.
bool replace_traced_values(c10::ivalue::Object& module);

// Calls `visit` for each tensor in a value: the value itself, or those in lists, tuples and dicts. Returns the value with
// what `visit` returned in their places. Other values stay, and so do objects with all that they hold.
c10::IValue with_each_tensor(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> visit);

// Returns whether two values are the same for a trace: of one structure and with equal numbers and strings, whatever tensors
// they hold. Objects are the same by identity.
bool have_equal_structure(const c10::IValue& a, const c10::IValue& b);

}  // namespace sconce
