// What the compiler prints about its work when asked by SCONCE_DUMP.
//
//   SCONCE_DUMP=load,after:eliminate_dead_nodes,plan
#pragma once

#include "ir/graph.h"

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace sconce {

enum class DumpPoint {
  kLoad,    // the graph as it was converted from the file
  kBefore,  // before:PASS, the graph that a pass gets
  kAfter,   // after:PASS, the graph that a pass leaves; `after` alone means every pass that changed something
  kPlan,    // the steps of every plan
};

struct DumpChoice {
  DumpPoint point;
  std::string_view name;
  std::string_view help;
};
// Generates the help of the command line; `all` chooses everything.
std::span<const DumpChoice> dump_choices();

// Whether `filter` (the value of SCONCE_DUMP) asks for the point; `subject` is the name of the pass or method.
bool dump_wanted(std::string_view filter, DumpPoint point, std::string_view subject);

// Prints to stderr when the environment asks for it; the text is made only then.
void dump(DumpPoint point, std::string_view subject, const Graph& graph);
void dump(DumpPoint point, std::string_view subject, const std::function<std::string()>& text);

}  // namespace sconce
