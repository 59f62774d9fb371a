// Splits a joint graph into the forward graph, which keeps values for backward, and the backward graph.
#pragma once

#include "autodiff/joint/joint_graph.h"
#include "ir/gradient_signature.h"

#include <memory>

namespace sconce {

// The graphs and the signature of a sconce::differentiable node (ir/differentiable.h).
struct DifferentiableGraphs {
  std::shared_ptr<Graph> forward;
  std::shared_ptr<Graph> backward;
  std::shared_ptr<Graph> general_backward;  // null for a recording
  GradientSignature signature;
};

// Consumes the graph: neither it nor its nodes may be used afterwards. The signature of a recording does not say which
// gradients reach which inputs.
//
// Backward computes what depends on a gradient, and computes again what only the texts of gradients need and views of saved
// values. Forward computes everything else: numbers, so that sizes are saved and not tensors, and values that both need,
// which are saved.
DifferentiableGraphs split_joint_graph(JointGraph joint);

}  // namespace sconce
