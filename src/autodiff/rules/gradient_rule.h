// Gradient rules: by what a node is differentiated. The texts of its operator's row (ops/op_row.h), or else, where the row
// allows it, what LibTorch's autograd does in such a call (record_gradient.h).
#pragma once

#include "ir/graph.h"
#include "load/compile_op_row.h"

namespace sconce {

struct GradientRule {
  const OpGradient* gradient = nullptr;  // null: there is none
  bool is_recorded = false;              // its gradients have the sizes and dtypes of the operands
};

// Returns the rule of the node's row, or the one that `record_gradients` found for the node.
GradientRule gradient_of(const Node& node);

// Returns whether the row of the node's operator has no texts and allows a recorded gradient.
bool may_have_recorded_gradient(const Node& node);

// Finds the recorded gradients of the graph's nodes, those in blocks too. What facts and constants tell of the operands
// decides. A node, and each copy of it, keeps its gradient as an attribute: passes may refine facts, and may make constants
// the inputs of a subgraph. A gradient that is not recorded yet takes tens of milliseconds.
void record_gradients(Graph& graph);
// Takes the attributes away.
void forget_recorded_gradients(Graph& graph);

}  // namespace sconce
