// The list of named passes, for the command line, the tests and plug-ins. executor/stages.cpp lists the passes in their
// order; `simplify` there stands for the four passes of passes/simplify/simplify.cpp.
#pragma once

#include "ir/graph.h"

#include <sconce/pass_pipeline.h>

#include <span>
#include <string_view>
#include <vector>

namespace sconce {

// A pass. Returns whether the graph changed.
using PassFunction = bool (*)(Graph& graph);

struct PassInfo {
  std::string_view name;
  PassFunction function;
  Stage stage;                    // runs it first; executor/stages.cpp lists the order
  std::string_view help;          // one line
  bool changes_rounding = false;  // results may differ by rounding from those before the pass
};

// Returns all named passes, sorted by name.
std::span<const PassInfo> all_passes();

// Returns the names of passes that need what only a compile has, such as a module's constants or an argument spec. They
// cannot be run by name, but are timed and dumped as all passes are.
std::span<const std::string_view> passes_with_arguments();

// Returns the pass of that name, or null.
const PassInfo* find_pass(std::string_view name);

// Returns the names nearest to an unknown name, best first, for error messages.
std::vector<std::string_view> nearest_pass_names(std::string_view name);

}  // namespace sconce
