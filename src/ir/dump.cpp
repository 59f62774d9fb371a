#include "ir/dump.h"

#include "base/environment.h"
#include "ir/text/print.h"

#include <array>
#include <iostream>

namespace sconce {

std::span<const DumpChoice> dump_choices() {
  static constexpr std::array choices = {
      DumpChoice{DumpPoint::kLoad, "load", "the graph as it was converted from the file"},
      DumpChoice{DumpPoint::kBefore, "before", "before:PASS, the graph that a pass gets"},
      DumpChoice{DumpPoint::kAfter, "after",
                 "after:PASS, the graph that a pass leaves; without a name, all passes that changed it"},
      DumpChoice{DumpPoint::kPlan, "plan", "the steps of every plan"},
  };
  return choices;
}

bool dump_wanted(std::string_view filter, DumpPoint point, std::string_view subject) {
  std::string_view name;
  for (const DumpChoice& choice : dump_choices()) {
    if (choice.point == point) {
      name = choice.name;
    }
  }
  while (!filter.empty()) {
    const size_t comma = std::min(filter.find(','), filter.size());
    const std::string_view item = filter.substr(0, comma);
    const size_t colon = item.find(':');
    const bool subject_fits = colon == std::string_view::npos || item.substr(colon + 1) == subject;
    if (item == "all" || (item.substr(0, colon) == name && subject_fits)) {
      return true;
    }
    filter.remove_prefix(std::min(comma + 1, filter.size()));
  }
  return false;
}

void dump(DumpPoint point, std::string_view subject, const std::function<std::string()>& text) {
  if (!environment().dump.empty() && dump_wanted(environment().dump, point, subject)) {
    // A single write, so that dumps of several threads do not mix.
    std::string_view name;
    for (const DumpChoice& choice : dump_choices()) {
      name = choice.point == point ? choice.name : name;
    }
    std::cerr << "# " + std::string(name) + ":" + std::string(subject) + "\n" + text() + "\n" << std::flush;
  }
}

void dump(DumpPoint point, std::string_view subject, const Graph& graph) {
  dump(point, subject, [&] { return print(graph); });
}

}  // namespace sconce
