// Operators of libraries other than LibTorch.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

#include <string>

namespace sconce {

// Returns whether an operator may have effects of its own, or may read state besides its arguments: counters, files,
// settings of its library. It must run as often as the program calls it, with the library's state at that moment.
// Returns false for LibTorch's operators, and for operators that their library declares to be functions of their arguments,
// with the tag `pt2_compliant_tag` or alias analysis PURE_FUNCTION.
bool may_do_more_than_compute(const c10::OperatorHandle& op);
// Returns "calls NAME, an operator of a library".
std::string call_of_library(const c10::OperatorHandle& op);

}  // namespace sconce
