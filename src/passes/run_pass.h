// How code that is made of passes runs them: through a PassRunner, if it is given one.
#pragma once

#include "ir/graph.h"

#include <functional>
#include <string_view>

namespace sconce {

// Runs a pass on the graph and returns whether that changed.
using RunPass = std::function<bool(std::string_view name, const std::function<bool(Graph&)>& pass, Graph& graph)>;

// Calls `run`, or the pass itself if there is none.
inline bool run_pass(const RunPass& run, std::string_view name, const std::function<bool(Graph&)>& pass, Graph& graph) {
  return run != nullptr ? run(name, pass, graph) : pass(graph);
}

}  // namespace sconce
