// Arguments for operators of which nothing is known but their schema.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace sconce::testing {

// Ways to fill in a schema: operators want matrices or images, floating or integral tensors, indices, lists of one length.
inline constexpr int kArgumentRecipes = 10;

struct RegistryArguments {
  std::vector<c10::IValue> values;
  std::vector<c10::TypePtr> types;  // of the arguments, type variables replaced
  std::vector<c10::TypePtr> results;
};

// One value per argument of the schema, two more for one that takes any number. Absent when an argument's or a result's type
// has no value that can be made here (`why` names it).
std::optional<RegistryArguments> make_registry_arguments(const c10::FunctionSchema& schema, int recipe, std::string& why);

}  // namespace sconce::testing
