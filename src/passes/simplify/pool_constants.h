// One constant of each value, at the top of the graph.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Of numbers, strings, None and the like; of tensors where it is one and the same tensor. Two tensors of the same bytes, and
// two lists of the same numbers, become one where the graph does no more than read either. Enums and others stay where they
// are.
bool pool_constants(Graph& graph);

}  // namespace sconce
