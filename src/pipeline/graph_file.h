// A graph in a file: its text, and what has no text (tensors) in a file of the same name and ".constants.pt".
#pragma once

#include "ir/graph.h"

#include <string>
#include <vector>

namespace sconce {

// `head`: lines that begin with '#'. Throws c10::Error when a file cannot be written.
void write_graph_file(const std::string& path, const std::string& head, const Graph& graph);

// What was written beside the text, for ParseOptions::constants. Empty when there is no such file.
std::vector<c10::IValue> read_graph_constants(const std::string& path);

}  // namespace sconce
