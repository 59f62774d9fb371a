// A node, replaced by the graph of a TorchScript function.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Replaces the node by the nodes of `body`, whose inputs are the node's. `body` returns the node's result, or a tuple that
// it constructs of its results. Errors and traces of the new nodes name the node's line of the model.
void inline_function(Node& node, const Graph& body);

// Returns whether the node is what an inlined function left to a recurrent operator, for operands that the function does not
// serve: the second branch of an If returns the node's results alone, and the first computes them by products.
//
//   %y, %h = prim::If(%fits)
//     block0():  … aten::linear(%x, %weight, …) …  -> (%y0, %h0)
//     block1():  %y1, %h1 = aten::gru(%x, …)       -> (%y1, %h1)
bool is_alternative_to_products(const Node& node);

}  // namespace sconce
