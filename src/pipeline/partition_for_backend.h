// Subgraphs for a backend of your own: what it supports is cut out and run by its kernel.
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
  // Asked for operators without effects: nothing that writes, draws random numbers, prints, or reads global state. An
  // operator whose result shares memory with an operand (a view) is asked for, too, and is claimed where only claimed
  // operators use that result.
  std::function<bool(const Node&)> supports;
  // Gives the kernel, or none: then the operators stay as they are. The subgraph is one block of supported operators and
  // constants; its values have the facts that are known in the graph around it.
  std::function<SubgraphKernel(const std::shared_ptr<const Graph>& subgraph)> compile;
  // Smaller subgraphs stay as they are. Constants don't count.
  size_t min_nodes = 2;
};

// A pass that claims the largest connected subgraphs that it can, block by block. A subgraph is as it would be had its
// operators stood one behind the other: between them nothing has effects and nothing uses their results. Operators in
// between that do neither run first, so that of two errors another may be the one that is raised.
//
// The operators themselves run where an operand wants a gradient (in either mode) or the caller's autocast is on, where the
// kernel declines the call, and where it throws. If they succeed after it has thrown, it is to blame: a warning says so, and
// it is not called again.
PassCallback partition_for_backend(std::string name, BackendPartitioner partitioner);

}  // namespace sconce
