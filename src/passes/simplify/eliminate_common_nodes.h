// Merges nodes that compute the same from the same.
#pragma once

#include "ir/graph.h"

namespace sconce {

// A node is replaced by an earlier one of the same kind, operands and attributes, in its block or one around it, when
// nothing in between may write what they read or change the state that operators see, and when nobody can tell one result
// from two: neither is written, and not both leave the graph.
bool eliminate_common_nodes(Graph& graph);

}  // namespace sconce
