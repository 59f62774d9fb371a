// The values that a node and the nodes nested in it use.
#pragma once

#include "ir/graph.h"

#include <c10/util/FunctionRef.h>

#include <unordered_set>

namespace sconce {

using ValueSet = std::unordered_set<const Value*>;

// Calls `visit` with the values that the node and those nested in it use, without those that nested blocks define. A value
// that is used twice is visited twice.
void for_each_operand(const Node& node, c10::function_ref<void(Value*)> visit);

// Returns whether the node, or a node or block nested in it, uses one of the values.
bool uses_any(const Node& node, const ValueSet& values);

}  // namespace sconce
