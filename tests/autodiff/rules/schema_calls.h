// Calls of an operator that its schema suggests.
#pragma once

#include "autodiff/rules/call_pattern.h"

#include <vector>

namespace sconce::testing {

// Returns patterns for calls with tensors of doubles whose sizes are open. Names of arguments tell what they may be. Most
// patterns are of calls that the operator rejects.
std::vector<CallPattern> suggested_calls(const Op& op);

// Returns the pattern of a call: its dtypes and ranks; sizes of 1 stay.
CallPattern pattern_of(const Op& op, const std::vector<c10::IValue>& arguments);

}  // namespace sconce::testing
