// One constant of each value, at the top of the graph.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Of numbers, strings, None and the like; of tensors where it is one and the same tensor. Lists, enums and others stay where they are.
bool pool_constants(Graph& graph);

}  // namespace sconce
