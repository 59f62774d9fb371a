// Partitions a graph for a backend of the user's: subgraphs of supported operators become delegates, which run its kernels.
//
//   options.passes().after(sconce::Stage::kOptimize, "my_backend", sconce::partition_for_backend("my_backend", {
//       .supports = [](const sconce::Node& node) { return node.kind() == sconce::aten::relu || …; },
//       .compile = [](const auto& subgraph) -> sconce::SubgraphKernel { … }}));
#pragma once

#include <sconce/pass_pipeline.h>

#include "ir/delegate.h"
#include "ir/graph.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace sconce {

struct BackendPartitioner {
  // Returns whether the backend supports an operator. Called only for operators without effects: they do not write, draw
  // random numbers, print or read global state. Called for views, too; a view is delegated only if all users of its result
  // are in the same subgraph.
  std::function<bool(const Node&)> supports;
  // Returns a kernel for the subgraph, or none, in which case its operators stay as they are. The subgraph is one block of
  // supported operators and constants. Its values have the facts of the graph around it.
  std::function<SubgraphKernel(const std::shared_ptr<const Graph>& subgraph)> compile;
  // Subgraphs with fewer nodes stay as they are. Constants do not count.
  size_t min_nodes = 2;
};

// Returns a pass that delegates the largest connected subgraphs it can, block by block.
//
// Legal when, between the first and the last operator of a subgraph, no other node has effects or uses their results.
// Other nodes in between run before the delegate. If two operators would raise, a different one may therefore raise first.
//
// A delegate runs its operators instead of the kernel if an operand requires a gradient (in either mode), if the caller's
// autocast is on, if the kernel declines the call, and after the kernel threw. If the operators succeed where the kernel
// threw, the kernel is at fault: a warning says so, and the kernel is not called again.
PassCallback partition_for_backend(std::string name, BackendPartitioner partitioner);

}  // namespace sconce
