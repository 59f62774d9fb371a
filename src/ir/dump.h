// SCONCE_DUMP: prints graphs and plans while a model is compiled.
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
// Returns all choices, from which the command line's help is generated. The choice `all` includes every other.
std::span<const DumpChoice> dump_choices();

// Returns whether `filter`, a value of SCONCE_DUMP, includes the point. `subject` is the name of the pass or method.
bool dump_wanted(std::string_view filter, DumpPoint point, std::string_view subject);

// Prints to stderr if SCONCE_DUMP includes the point. `text` is called only then.
void dump(DumpPoint point, std::string_view subject, const Graph& graph);
void dump(DumpPoint point, std::string_view subject, const std::function<std::string()>& text);

}  // namespace sconce
