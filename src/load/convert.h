// Converts LibTorch's graphs, as its loader and frontend return them.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace sconce {

// Copies the graph node by node, with names, types, attributes, source ranges and operators' schemas. Resolves and
// simplifies nothing. Refuses graphs with nodes that only Python can run.
Expected<std::unique_ptr<Graph>> convert(const torch::jit::Graph& source);

}  // namespace sconce
