// Chooses the nodes of differentiable subgraphs.
#pragma once

#include "autodiff/select/roles.h"
#include "ir/graph.h"

#include <sconce/explanation.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace sconce {

// Nodes of one block, in program order, that can run together in the place of the last one.
struct DifferentiableSlice {
  std::vector<Node*> nodes;
};

struct DifferentiableSlices {
  std::vector<DifferentiableSlice> slices;
  // The other nodes that gradients flow through, and why no slice has them.
  std::vector<std::pair<const Node*, NotDifferentiated>> outside;
};

// Returns the slices of the graph and of its nested blocks: the connected parts of maximal runs of nodes with a role
// (roles.h) that no other node between them depends on or has effects on. Such a run has at least `min_nodes`
// nodes that a gradient flows through. A slice begins and ends with one.
//
// A value that the caller can see ends its slice: user code may ask for its gradient or hook it, so that the values computed
// from it must be another autograd node's.
DifferentiableSlices slice_differentiable(Graph& graph, const Roles& roles, size_t min_nodes);

}  // namespace sconce
