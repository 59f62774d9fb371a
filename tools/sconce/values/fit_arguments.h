// Converts values of a file or the command line to the types of a method's schema.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <vector>

namespace sconce::cli {

// Converts a value to the type, as a call of a scripted method from Python would: an int to a float, None to an optional, a
// list or dict whose file lacks the element types, a tuple to a named tuple, a string to a device or to the enum member that
// it names. Nothing if it does not fit.
std::optional<c10::IValue> fit_value(const c10::IValue& value, const c10::TypePtr& type);

// Converts all arguments of a call, without `self`. Missing arguments with defaults stay missing. Throws UserError with one
// line that names the argument and shows the method's signature.
std::vector<c10::IValue> fit_arguments(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments);

// The same for a method of a module. Each loaded module has enum classes of its own, so each needs its own arguments.
std::vector<c10::IValue> fit_arguments(const torch::jit::Module& module, const std::string& method,
                                       const std::vector<c10::IValue>& arguments);

// Returns "forward(Tensor x, int n=2)", for messages.
std::string describe_signature(const c10::FunctionSchema& schema);

}  // namespace sconce::cli
