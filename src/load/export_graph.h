// Our graph → LibTorch's, for those who speak only LibTorch's: its tracer, its printer, its serializer.
#pragma once

#include "ir/graph.h"

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace sconce {

// One node for one node: names, types, facts, attributes, nested blocks, subgraphs and source ranges are carried over.
// `convert` of the result gives the same graph again. Throws c10::Error for a constant of a function that is not known here.
std::shared_ptr<torch::jit::Graph> export_graph(const Graph& source);

}  // namespace sconce
