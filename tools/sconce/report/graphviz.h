// Pictures of graphs, drawn by Graphviz's program `dot`.
#pragma once

#include <string>

namespace sconce::cli {

// Converts a graph from the DOT language to SVG. Throws UserError if `dot` is not installed or rejects the text.
std::string draw_svg(const std::string& dot_text);

}  // namespace sconce::cli
