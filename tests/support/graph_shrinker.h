// Makes a failing graph small enough to read.
#pragma once

#include "ir/graph.h"

#include <functional>
#include <memory>

namespace sconce::testing {

// Whether a graph, which is well formed, still fails in the way that matters. Graphs that fail otherwise do not count.
using StillFails = std::function<bool(const Graph& graph)>;

// A graph that fails and from which no node, block or output can be taken any more. Keeps the graph's inputs. Each step
// takes one thing out: a node whose results are unused, a node whose results an earlier value of the same type can stand
// for, a prim::If in favor of one of its branches, an output of the graph. Stops after `max_tries` questions.
std::unique_ptr<Graph> shrink(const Graph& graph, const StillFails& still_fails, int max_tries = 2000);

}  // namespace sconce::testing
