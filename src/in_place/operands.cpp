#include "in_place/operands.h"

#include <ATen/core/class_type.h>
#include <torch/csrc/jit/api/compilation_unit.h>

namespace sconce {

torch::jit::Module module_of(const c10::IValue& value) {
  TORCH_CHECK(value.isObject() && value.type()->is_module(), "sconce: expects a scripted module, not ",
              value.isObject() ? value.type()->repr_str() : value.tagKind());
  return torch::jit::Module(value.toObject());
}

torch::jit::Function& function_of(const c10::IValue& any, const std::string& name) {
  const auto unit = module_of(any)._ivalue()->compilation_unit();
  torch::jit::Function* function = unit->find_function(c10::QualifiedName(name));
  TORCH_CHECK(function != nullptr, "sconce: there is no function '", name,
              "' where torch.jit.script puts them; one of another torch.jit.CompilationUnit cannot be accelerated");
  return *function;
}

}  // namespace sconce
