// The joint graph: a forward graph followed by the gradients of its inputs.
#pragma once

#include "ir/gradient_signature.h"
#include "ir/graph.h"
#include "passes/run_pass.h"

#include <c10/util/ArrayRef.h>

#include <memory>
#include <optional>
#include <vector>

namespace sconce {

//   graph(%x, %w,                    forward's inputs
//         %dy,                       gradients of the differentiable outputs
//         %dt,                       gradients of the intermediates
//         %records):                 a bool: whether autograd records backward
//     …
//     return (%y,                    forward's outputs
//             %dx, %dw,              gradients of the differentiable inputs
//             %t,                    the intermediates
//             …)                     conditions (GradientSignature::Output)
//
// Any of the gradients may be an undefined tensor.
//
// A recording is a joint graph, too. It has no intermediates, no %records and no conditions:
//
//   graph(%s,                        symbols: sizes that both phases take
//         %x, %w, %dy):
//     …                              up to `last_of_forward`
//     …
//     return (%y, %dx, %dw, %n)      %n: numbers that backward has read
struct JointGraph {
  // A value inside the forward graph that has a gradient: a tensor, or a list that a branch or loop saves. In double
  // backward the value receives a second gradient, through the saved copy that backward read.
  struct Intermediate {
    Value* value;     // kept up to date by `refresh`
    Value* gradient;  // an input of the graph
  };

  std::shared_ptr<Graph> graph;
  size_t forward_inputs = 0;
  size_t forward_outputs = 0;
  GradientSignature signature;  // inputs and outputs; split_joint_graph chooses what is saved
  std::vector<Intermediate> intermediates;
  // The graph is a block's: its first inputs are the block's params. Each run of the block saves params and outputs for
  // backward.
  size_t params = 0;
  bool is_block = false;
  RunPass run = nullptr;  // the passes that fold the graph and those of blocks in it
  struct Recording {
    const Node* last_of_forward = nullptr;
    size_t symbols = 0;
    size_t reads = 0;  // numbers that backward has read
  };
  std::optional<Recording> recording;

  c10::ArrayRef<Value*> outputs() const { return graph->outputs().slice(0, forward_outputs); }
  // The gradients, then the numbers that backward of a recording has read.
  c10::ArrayRef<Value*> backward_outputs() const {
    return graph->outputs().slice(forward_outputs, signature.inputs.size() + (recording ? recording->reads : 0));
  }
  c10::ArrayRef<Value*> conditions() const {
    return graph->outputs().slice(forward_outputs + backward_outputs().size() + intermediates.size());
  }
  // Returns whether a gradient flows from an output to an input. If not, the graph is the forward graph.
  bool has_gradient() const { return !signature.inputs.empty() && !signature.outputs.empty(); }

  // Reads the intermediates again, after passes replaced values.
  void refresh();
};

// Appends gradients to a forward graph of nodes with roles (roles.h), and of branches and loops of such nodes
// (differentiable_blocks.h). Operators with a forward text are replaced by it. Folds the branches of texts that facts
// decide.
//
// Reverse-mode differentiation: the nodes are visited from last to first, and each adds to the gradients of its operands. A
// gradient has the sizes and the dtype of its operand (reduce_gradient.h). What an operator adds is computed in a
// prim::GradOf of the gradients of its results: not at all where all of these are undefined.
//
// `run`: runs the passes that fold.
JointGraph differentiate_forward(std::shared_ptr<Graph> forward, const RunPass& run = nullptr);

// The same for the graph of a branch or of a loop's body, whose first `params` inputs are the block's params.
// `is_differentiable`: which inputs have gradients. Every such param has one among the outputs.
JointGraph differentiate_block(std::shared_ptr<Graph> block, size_t params, const std::vector<bool>& is_differentiable,
                               const RunPass& run);

}  // namespace sconce
