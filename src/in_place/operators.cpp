// The operators of torch.ops.sconce. An operator of a module takes the object (in Python `module._c`).
#include <sconce/in_place.h>

#include "in_place/accelerated_functions.h"

#include <ATen/core/class_type.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/library.h>

namespace sconce {
namespace {

torch::jit::Module module_of(const c10::IValue& value) {
  TORCH_CHECK(value.isObject() && value.type()->is_module(), "sconce: expects a scripted module, not ",
              value.isObject() ? value.type()->repr_str() : value.tagKind());
  return torch::jit::Module(value.toObject());
}

// Operators cannot be given a function. `any` is a module of the same program.
torch::jit::Function& function_of(const c10::IValue& any, const std::string& name) {
  const auto unit = module_of(any)._ivalue()->compilation_unit();
  torch::jit::Function* function = unit->find_function(c10::QualifiedName(name));
  TORCH_CHECK(function != nullptr, "sconce: there is no function '", name, "'");
  return *function;
}

// Pages one after the other, or a JSON list.
std::string text_of(const std::vector<Explanation>& methods, bool json) {
  std::string text;
  for (const Explanation& each : methods) {
    text += (text.empty() ? "" : json ? ",\n" : "\n") + (json ? to_json(each) : to_text(each));
  }
  return json ? "[\n" + text + "]\n" : text.empty() ? "accelerated; nothing has run yet\n" : text;
}

}  // namespace
}  // namespace sconce

TORCH_LIBRARY(sconce, library) {
  using c10::IValue;
  using std::string;
  using namespace sconce;
  library.def("accelerate(Any module, str options=\"\") -> ()", [](const IValue& module, const string& options) {
    accelerate_in_place(module_of(module), Options::from_json(options));
  });
  library.def("accelerate_function(Any any_module, str name, str options=\"\") -> ()",
              [](const IValue& any, const string& name, const string& options) {
                accelerate_in_place(function_of(any, name), Options::from_json(options));
              });
  library.def("restore(Any module) -> bool", [](const IValue& module) { return restore(module_of(module)); });
  library.def("restore_function(Any any_module, str name) -> bool",
              [](const IValue& any, const string& name) { return restore(function_of(any, name)); });
  library.def("is_accelerated(Any module) -> bool", [](const IValue& module) { return is_accelerated(module_of(module)); });
  library.def("is_accelerated_function(Any any_module, str name) -> bool",
              [](const IValue& any, const string& name) { return is_accelerated(function_of(any, name)); });
  library.def("explain(Any module, bool json=False) -> str",
              [](const IValue& module, bool json) { return text_of(explain_in_place(module_of(module)), json); });
  library.def("explain_function(Any any_module, str name, bool json=False) -> str",
              [](const IValue& any, const string& name, bool json) {
                return text_of(explain_in_place(function_of(any, name)), json);
              });
  library.def("wait_for_compiles(Any module) -> ()",
              [](const IValue& module) { wait_for_compiles_in_place(module_of(module)); });
  library.def("wait_for_compiles_function(Any any_module, str name) -> ()",
              [](const IValue& any, const string& name) { wait_for_compiles_in_place(function_of(any, name)); });
  library.def("note_immortal_code(Any module) -> ()",
              [](const IValue& module) { AcceleratedFunctions::get().note_immortal_code_of(*module_of(module)._ivalue()); });
  library.def("status() -> str", [] { return AcceleratedFunctions::get().status(); });
}
