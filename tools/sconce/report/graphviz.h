// Pictures, drawn by Graphviz' program `dot`.
#pragma once

#include <string>

namespace sconce::cli {

// A graph in the DOT language → SVG. Throws UserError when `dot` is not installed or does not accept the text.
std::string draw_svg(const std::string& dot_text);

}  // namespace sconce::cli
