// docs/command_line.md, made of the options that the parser itself has.
#pragma once

#include <CLI/App.hpp>

#include <string>

namespace sconce::cli {

// Markdown: a section for each command with its usage, positionals, options and footer; what all commands share
// (options, the grammar of SPECs) is told once, at the end. Keeps the order in which the options were added.
std::string command_line_page(const CLI::App& app);

}  // namespace sconce::cli
