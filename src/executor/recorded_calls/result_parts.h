// result_parts: the parts of a recorded forward that become autograd nodes of their own.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace sconce {

// Nodes of a forward that the same differentiable results depend on.
//
//   h = linear(x, w)        {h, y}     part 0: (x, w) -> h        A hook on h must also see the gradient that comes from y.
//   z = cos(x)              {z}        part 1: (x) -> z           Backward from h must not reach v, and backward from y must
//   y = h @ v               {y}        part 2: (h, v) -> y        not pass through z. LibTorch's engine does all of this if
//                                                                 h, z and y come from three nodes.
struct ResultPart {
  // Takes the symbols, the arguments, and `operands`. Returns `outputs`.
  std::shared_ptr<const Graph> graph;
  // Values of the forward: those that parts before return, then captured tensors.
  std::vector<const Value*> operands;
  // Values of the forward: results, numbers that the call reads, and what later parts read.
  std::vector<const Value*> outputs;
};

// Returns the parts in an order in which they can run; none if there would be one. Refuses where that order would change
// what is written or drawn.
//
// `forward`: its first `shared` inputs are symbols and arguments. `returned`: what parts return besides what other parts
// read. `differentiable`: those that bring gradients.
Expected<std::vector<ResultPart>> split_at_results(const Graph& forward, size_t shared,
                                                   const std::vector<const Value*>& returned,
                                                   const std::vector<const Value*>& differentiable);

}  // namespace sconce
