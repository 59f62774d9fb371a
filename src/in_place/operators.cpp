// The operators of torch.ops.sconce. An operator of a module takes the object (in Python `module._c`).
#include <sconce/in_place.h>
#include <sconce/status.h>

#include "in_place/accelerated_functions.h"
#include "in_place/operands.h"

#include <torch/library.h>

namespace sconce {
namespace {

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
  // They have effects, and read what calls have done since: a script keeps each call of them where it is.
  const auto define = [&](const char* schema, auto function) {
    library.def(torch::schema(schema, c10::AliasAnalysisKind::CONSERVATIVE), function);
  };
  define("accelerate(Any module, str options=\"\") -> ()", [](const IValue& module, const string& options) {
    accelerate_in_place(module_of(module), Options::from_json(options));
  });
  define("accelerate_function(Any any_module, str name, str options=\"\") -> ()",
         [](const IValue& any, const string& name, const string& options) {
           accelerate_in_place(function_of(any, name), Options::from_json(options));
         });
  define("restore(Any module) -> bool", [](const IValue& module) { return restore(module_of(module)); });
  define("restore_function(Any any_module, str name) -> bool",
         [](const IValue& any, const string& name) { return restore(function_of(any, name)); });
  define("is_accelerated(Any module) -> bool", [](const IValue& module) { return is_accelerated(module_of(module)); });
  define("is_accelerated_function(Any any_module, str name) -> bool",
         [](const IValue& any, const string& name) { return is_accelerated(function_of(any, name)); });
  define("explain(Any module, bool json=False) -> str",
         [](const IValue& module, bool json) { return text_of(explain_in_place(module_of(module)), json); });
  define("explain_function(Any any_module, str name, bool json=False) -> str",
         [](const IValue& any, const string& name, bool json) {
           return text_of(explain_in_place(function_of(any, name)), json);
         });
  define("wait_for_compiles(Any module) -> ()", [](const IValue& module) { wait_for_compiles_in_place(module_of(module)); });
  define("wait_for_compiles_function(Any any_module, str name) -> ()",
         [](const IValue& any, const string& name) { wait_for_compiles_in_place(function_of(any, name)); });
  define("note_immortal_code(Any module) -> ()",
         [](const IValue& module) { AcceleratedFunctions::get().note_immortal_code_of(*module_of(module)._ivalue()); });
  define("accelerate_all(str options=\"\") -> ()",
         [](const string& options) { accelerate_all(Options::from_json(options)); });
  define("stop_accelerating_all() -> bool", [] { return stop_accelerating_all(); });
  define("status() -> str", [] { return AcceleratedFunctions::get().status(); });
  define("capabilities() -> str", [] { return to_json(capabilities()); });
}
