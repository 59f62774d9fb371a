// Tuples that are only carried around, taken apart.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Elements read from a tuple that the graph builds are the elements themselves; a tuple that a branch or loop hands on is
// handed on element by element. Tuples that enter or leave the graph, or are stored or passed to operators, stay.
bool lower_tuples(Graph& graph);

}  // namespace sconce
