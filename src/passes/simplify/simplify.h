// The passes that feed each other, run together.
#pragma once

#include "ir/graph.h"
#include "passes/run_pass.h"

namespace sconce {

// Runs lower_tuples, peephole, propagate_constants and fold_constant_branches until none of them changes the graph, or
// `max_iterations` times. What one leaves, another may take further: a constant decides a branch, a branch leaves a tuple.
//
// `run`: runs each of them.
void simplify(Graph& graph, const RunPass& run = nullptr, int max_iterations = 10);

}  // namespace sconce
