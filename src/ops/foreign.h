// Operators of libraries other than LibTorch.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

namespace sconce {

// Returns whether an operator may do more than compute results from its arguments, or read more than these: counters, files,
// settings of its library. It is then called as often as the program calls it, with the library's state of that moment.
// False for operators of LibTorch that compute, and for those of which the library says that they are functions of their
// arguments: by the tag `pt2_compliant_tag`, or by alias analysis PURE_FUNCTION.
bool may_do_more_than_compute(const c10::OperatorHandle& op);

}  // namespace sconce
