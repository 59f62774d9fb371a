// The list of passes that have a name: for the command line, the tests and plug-ins. Their order in the compiler is
// code, in executor/compile.cpp.
#pragma once

#include "ir/graph.h"

#include <sconce/pass_pipeline.h>

#include <span>
#include <string_view>
#include <vector>

namespace sconce {

// Returns whether the graph changed.
using PassFunction = bool (*)(Graph& graph);

struct PassInfo {
  std::string_view name;
  PassFunction function;
  Stage stage;                    // runs it first; executor/compile.cpp has the order
  std::string_view help;          // one line
  bool changes_rounding = false;  // results may differ by rounding from those of the graph before
};

// Sorted by name.
std::span<const PassInfo> all_passes();

const PassInfo* find_pass(std::string_view name);

// The names nearest to a name that is none, best first; for error messages.
std::vector<std::string_view> nearest_pass_names(std::string_view name);

}  // namespace sconce
