// Calls of an operator that its schema suggests.
#pragma once

#include "autodiff/rules/call_pattern.h"

#include <vector>

namespace sconce::testing {

// Returns patterns for calls with tensors of doubles whose sizes are open. Names of arguments tell what they may be. Most
// patterns are of calls that the operator rejects.
std::vector<CallPattern> suggested_calls(const Op& op);

}  // namespace sconce::testing
