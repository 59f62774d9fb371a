// Records one backward as graphs and the host code between them.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "trace/sizes/size_pattern.h"
#include "training/backward/program.h"
#include "training/backward/walk.h"

#include <functional>
#include <memory>
#include <optional>

namespace sconce {

// Compiles the graph of a stage. Its inputs are sizes, then tensors.
using CompileStage = std::function<std::shared_ptr<Program>(std::unique_ptr<Graph> graph, const TraceSizes& sizes)>;

struct TracedBackward {
  BackwardProgram program;  // of no use if it was refused
  std::optional<Refusal> refusal;
  torch::autograd::variable_list results;  // of autograd::grad
};

// Runs the walk's backward on this thread and records it for the sizes of a pattern, which admits the walk's. `results`: how
// many gradients are asked for. Throws what the engine throws.
TracedBackward record_backward(BackwardSchedule& walk, const SizePattern& pattern, size_t results, bool keeps_graph,
                               const CompileStage& compile);

}  // namespace sconce
