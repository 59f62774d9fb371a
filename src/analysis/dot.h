// Graphs as pictures, drawn by Graphviz.
#pragma once

#include "ir/graph.h"

#include <string>

namespace sconce {

// Returns the graph in the DOT language: nodes with kind and attributes, edges with the value's name and type, blocks and
// the graphs of nodes as clusters. Constants are drawn inside the nodes that use them.
std::string to_dot(const Graph& graph, const std::string& title);

}  // namespace sconce
