// Exports a graph to LibTorch's form, for LibTorch's tracer, printer and serializer.
#pragma once

#include "ir/graph.h"

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace sconce {

// Copies the graph node by node, with names, types, facts, attributes, nested blocks, subgraphs and source ranges. `convert`
// of the result returns an equal graph. Throws c10::Error for a constant that is a function unknown in this process.
std::shared_ptr<torch::jit::Graph> export_graph(const Graph& source);

}  // namespace sconce
