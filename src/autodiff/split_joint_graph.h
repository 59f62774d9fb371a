// Splits a joint graph into the forward graph, which keeps values for backward, and the backward graph.
#pragma once

#include "autodiff/joint_graph.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace sconce {

// The graphs and positions of a sconce::differentiable node (ir/differentiable.h).
struct DifferentiableGraphs {
  std::shared_ptr<Graph> forward;
  std::shared_ptr<Graph> backward;
  std::shared_ptr<Graph> general_backward;
  std::vector<int64_t> captured_inputs;
  std::vector<int64_t> captured_outputs;
  std::vector<int64_t> differentiable_temporaries;
  std::vector<int64_t> capture_paths;
};

// Splits the graph, of which nothing may be used afterwards.
//
// Backward computes what depends on a gradient, and computes again what only the texts of gradients need and views of what
// it captures. Forward computes everything else: numbers, so that backward captures sizes and not tensors, and values that
// both need, which backward captures.
DifferentiableGraphs split_joint_graph(JointGraph joint);

}  // namespace sconce
