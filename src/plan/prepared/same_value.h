// Comparison of the numbers and lists that a kernel was prepared for.
#pragma once

#include <ATen/core/ivalue.h>

namespace sconce {

// Returns whether both are the same None, number, string, dtype, device, or list of numbers. False for all other types.
bool is_same_value(const c10::IValue& a, const c10::IValue& b);

// Returns the value for later comparison: a list is copied, because the graph may write it.
c10::IValue snapshot_of(const c10::IValue& value);

}  // namespace sconce
