// Replaces tuples that do not escape by their elements. Scalar replacement of tuples.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Replaces reads of a tuple that the graph builds by the elements, and passes tuples through branches and loops element by
// element.
//
// Does not: change tuples that are inputs or outputs of the graph, are stored, or are operands of operators; or any tuple
// whose identity is observable (object_identity.h).
// Returns whether the graph changed.
bool lower_tuples(Graph& graph);

}  // namespace sconce
