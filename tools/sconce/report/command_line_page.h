// Generates docs/command_line.md from the parser's options.
#pragma once

#include <CLI/App.hpp>

#include <string>

namespace sconce::cli {

// Returns Markdown: a section for each command with its usage, positionals, options and footer; at the end, once, what all
// commands share (options, the grammar of SPECs). Options are in the order in which they were added.
std::string command_line_page(const CLI::App& app);

}  // namespace sconce::cli
