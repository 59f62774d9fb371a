// Cuts the forward of a recorded call where results are computed from other results.
#pragma once

#include "ir/graph.h"

#include <memory>
#include <vector>

namespace sconce {

// Returns a copy of the graph with an input more per result of `cut`, by its position among the outputs: what is computed
// from the result reads the input. Returns null where that is not known: a node may write the result, and others may read it
// through a view that was made before.
std::unique_ptr<Graph> cut_at_results(const Graph& forward, const std::vector<size_t>& cut);

}  // namespace sconce
