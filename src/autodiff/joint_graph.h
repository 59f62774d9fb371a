// The joint graph: a forward graph followed by the gradients of its inputs.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace sconce {

struct JointGraph {
  // A value inside the forward graph that has a gradient. Backward of backward brings a further gradient to it, if backward
  // reads the value.
  struct Inner {
    Value* value;     // kept up to date by `refresh`
    Value* gradient;  // an input of the graph, after the gradients of the outputs
  };

  // Inputs: the forward graph's, the gradients of the differentiable outputs, the gradients of the inner values.
  // Outputs: the forward graph's, the gradients of the differentiable inputs, the inner values.
  std::shared_ptr<Graph> graph;
  size_t forward_inputs;
  size_t forward_outputs;
  std::vector<int64_t> differentiable_inputs;   // positions among the forward graph's inputs
  std::vector<int64_t> differentiable_outputs;  // positions among its outputs
  std::vector<int64_t> dependences;             // a row of 0 and 1 per differentiable output: the inputs that it depends on
  std::vector<Inner> inner;

  // Reads the inner values again, after passes replaced values.
  void refresh();
};

// Appends gradients to a forward graph of nodes with roles (differentiable_nodes.h), which has no nested blocks. Operators
// with a forward text are replaced by it. The texts' branches are not folded yet.
//
// Reverse-mode differentiation: the nodes are visited from last to first, and each adds to the gradients of its operands.
// The gradients of broadcast operands are summed to their sizes, and all have the dtypes of their operands.
JointGraph differentiate_forward(std::shared_ptr<Graph> forward);

}  // namespace sconce
