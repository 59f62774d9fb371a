// Which gradients meet which values in a backward graph.
#pragma once

#include "analysis/dependence.h"
#include "ir/graph.h"

#include <cstddef>
#include <vector>

namespace sconce {

// Tells for each value that backward has from forward which incoming gradients it takes to which outgoing ones: a node uses
// the value, or a value that is computed from it and from no gradient.
//
// The graph's first inputs are `incoming` gradients, followed by `values` values; others may follow. Its first outputs are
// `outgoing` gradients. Returns a table for each of the values: a row per incoming gradient, with a bit per outgoing one.
std::vector<Dependence> gradient_paths(const Graph& backward, size_t incoming, size_t outgoing, size_t values);

// Returns per output of the graph which incoming gradients it depends on.
std::vector<Dependence> gradients_of_outputs(const Graph& backward, size_t incoming);

// Returns per incoming gradient which others meet it at a node that reads a tensor of forward: eager
// execution frees that tensor when the first of them has come through. A sum is of gradients that come from several nodes,
// which share nothing before it.
std::vector<Dependence> gradients_that_share(const Graph& backward, size_t incoming);

}  // namespace sconce
