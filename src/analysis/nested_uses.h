// What a node uses, together with the nodes nested in it.
#pragma once

#include "ir/graph.h"

#include <unordered_set>

namespace sconce {

using ValueSet = std::unordered_set<const Value*>;

// Returns whether the node, or a node or block nested in it, uses one of the values.
bool uses_any(const Node& node, const ValueSet& values);

}  // namespace sconce
