// GradientTrace: what autograd does for one call, as a graph with that call's sizes.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "ops/op.h"

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

namespace sconce {

// The inputs of the graph are those of OpGradient::backward (load/compile_op_row.h): arguments, results, incoming gradients,
// `defined`, `needs`, `records`. Its outputs are the gradients that are defined. The graph is straight, writes nothing and
// draws no random numbers. It computes again what backward needs and is no argument or result.
struct GradientTrace {
  std::unique_ptr<Graph> graph;
  std::vector<size_t> positions;  // by output: the argument whose gradient it is
  std::vector<std::vector<int64_t>> result_sizes;
};

// `required`: per argument, whether it requires a gradient. `create_graph`: as LibTorch does it if backward is
// differentiated, too. Elements of a tensor decide nothing in the trace.
Expected<GradientTrace> trace_gradient(const Op& op, const std::vector<c10::IValue>& arguments,
                                       const std::vector<bool>& required, bool create_graph);

}  // namespace sconce
