// Graphs in files: the text, and beside it "NAME.constants.pt" with the constants that have no text form (tensors).
#pragma once

#include "ir/graph.h"

#include <string>
#include <vector>

namespace sconce {

// Writes the graph. `head`: comment lines that begin with '#'. Throws c10::Error if a file cannot be written.
void write_graph_file(const std::string& path, const std::string& head, const Graph& graph);

// Reads the constants beside the text, for ParseOptions::constants. Empty if there is no such file.
std::vector<c10::IValue> read_graph_constants(const std::string& path);

}  // namespace sconce
