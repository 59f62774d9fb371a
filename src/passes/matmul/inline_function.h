// A node, replaced by the graph of a TorchScript function.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Replaces the node by the nodes of `body`, whose inputs are the node's. `body` returns the node's result, or a tuple that
// it constructs of its results. Errors and traces of the new nodes name the node's line of the model.
void inline_function(Node& node, const Graph& body);

}  // namespace sconce
