// The facts about a node that must be known before it joins a kernel.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Returns whether kernels refuse the node for dtypes and ranks that its operands are known to have. Such a node stays out of
// groups, so that its neighbors still have kernels.
bool is_known_to_be_refused(const Node& node);

}  // namespace sconce
