// Records one backward as a graph.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "training/backward/walk.h"

#include <memory>
#include <optional>
#include <vector>

namespace sconce {

// Where an output of the graph goes: to a leaf, or to the caller of autograd::grad.
struct GradientTarget {
  bool is_leaf;
  size_t index;  // of the call of a leaf, or of the result that is returned
};

struct RecordedBackward {
  std::unique_ptr<Graph> graph;  // its inputs are the walk's tensors; null if it was refused
  std::vector<GradientTarget> targets;  // per output of the graph, in the engine's order; undefined gradients have none
  std::vector<at::Tensor> gradients;    // what this backward computed, per target
  std::optional<Refusal> refusal;
};

// Runs the walk's nodes on this thread, without leaves. Throws what they throw.
RecordedBackward record_backward(BackwardWalk& walk);

}  // namespace sconce
