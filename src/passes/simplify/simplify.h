// The passes that feed each other, run together.
#pragma once

#include "ir/graph.h"

#include <functional>
#include <string_view>

namespace sconce {

// Runs a pass on the graph and returns whether that changed.
using RunPass = std::function<bool(std::string_view name, bool (*pass)(Graph&), Graph& graph)>;

// Runs lower_tuples, peephole, propagate_constants and fold_constant_branches until none of them changes the graph, or
// `max_iterations` times. What one leaves, another may take further: a constant decides a branch, a branch leaves a tuple.
//
// `run`: runs each of them; by default it calls the pass.
void simplify(Graph& graph, const RunPass& run = nullptr, int max_iterations = 10);

}  // namespace sconce
