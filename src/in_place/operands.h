// What operators take: modules as objects, and functions by their names, as no operator can be given a function.
#pragma once

#include <sconce/options.h>

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <string>

namespace sconce {

// Throws c10::Error unless the value is a module.
torch::jit::Module module_of(const c10::IValue& value);
// `any`: a module of the same program. Throws c10::Error if it has no such function.
torch::jit::Function& function_of(const c10::IValue& any, const std::string& name);

// Throws c10::Error for options that do not fit a module that others may change.
void expect_to_fit_in_place(const Options& options);

}  // namespace sconce
