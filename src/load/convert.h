// LibTorch's graph, as its loader and frontend give it → ours.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace sconce {

// One node for one node, nothing is resolved or simplified: names, types, attributes, source ranges and the operators'
// schemas are carried over. Refuses graphs that hold what only Python can run.
Expected<std::unique_ptr<Graph>> convert(const torch::jit::Graph& source);

}  // namespace sconce
