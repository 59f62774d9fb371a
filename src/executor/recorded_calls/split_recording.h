// split_recording: forward and backward of a recorded call as two graphs.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace sconce {

// What a recorded call and its backward exchange.
//
//   graph(%s1, %x, %w, %dy)              forward: graph(%s1, %x, %w)        backward: graph(%dy, %s1, %x, %w, %h)
//     %h = mm(%x, %w)                      %h = mm(%x, %w)                    %dh = tanh_backward(%dy, %y)
//     %y = tanh(%h)                →       %y = tanh(%h)                      …
//     …                                    -> (%y, %h)                        -> (%dx, %dw)
//     -> (%y, %dx, %dw)
struct RecordingParts {
  std::unique_ptr<Graph> forward;   // returns the outputs, then what it keeps for backward
  std::unique_ptr<Graph> backward;  // takes the gradients of outputs, the symbols, saved inputs, saved outputs, what is kept
  std::vector<size_t> saved_inputs;   // positions among the tensors that forward takes
  std::vector<size_t> saved_outputs;  // positions among the outputs
  // Per gradient of an output, per gradient that backward returns: whether the latter depends on the former.
  std::vector<std::vector<bool>> reaches;
  // Per gradient of an output, per saved input and then per saved output: whether what depends on the gradient reads it.
  std::vector<std::vector<bool>> needs;
  bool reads_gradients = false;  // a number that backward reads depends on a gradient
  // Per pair of outputs: whether a node of LibTorch's autograd has gradients of both. Backward of one frees it for the
  // other.
  std::vector<std::vector<bool>> shares;
};

// Splits a recorded graph, whose inputs are `symbols` integers, `tensors` tensors, and gradients of outputs; whose outputs
// are `outputs` outputs of the call, `gradients` gradients of tensors, and numbers that backward reads. `last_of_forward`:
// the last node that ran forward.
RecordingParts split_recording(const Graph& recorded, size_t symbols, size_t tensors, size_t outputs, size_t gradients,
                               const Node* last_of_forward);

}  // namespace sconce
