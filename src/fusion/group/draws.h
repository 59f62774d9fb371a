// Operators that draw random numbers and have a kernel, which captures run.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Returns whether a kernel may compute the node in a capture. The node is then a group of its own.
bool may_draw_by_kernel(const Node& node);

}  // namespace sconce
