// Values of a file or the command line → what a method's schema asks for.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <vector>

namespace sconce::cli {

// The value as one of the type, as Python's call of a scripted method would take it: an int for a float, None for an
// optional, a list or dict whose file did not keep the element types, a tuple for a named tuple, a text for a device or
// for the member of an enum that it names.
// Nothing when it does not fit.
std::optional<c10::IValue> fit_value(const c10::IValue& value, const c10::TypePtr& type);

// All arguments of a call, `self` left out. Missing arguments with defaults stay missing. Throws UserError with one line
// that names the argument and shows what the method takes.
std::vector<c10::IValue> fit_arguments(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments);

// Of a method of the module. Each module that is loaded has enum classes of its own, so each needs its own arguments.
std::vector<c10::IValue> fit_arguments(const torch::jit::Module& module, const std::string& method,
                                       const std::vector<c10::IValue>& arguments);

// "forward(Tensor x, int n=2)", as in messages.
std::string describe_signature(const c10::FunctionSchema& schema);

}  // namespace sconce::cli
