#include "ir/verify/verify.h"

#include "base/assert.h"
#include "ir/text/print.h"

#include <sstream>

namespace sconce {

std::vector<Violation> find_violations(const Graph& graph) {
  std::vector<Violation> violations;
  for (const NamedCheck& check : structure_checks()) {
    check.check(graph, violations);
  }
  if (violations.empty()) {
    for (const NamedCheck& check : typing_checks()) {
      check.check(graph, violations);
    }
  }
  return violations;
}

void verify(const Graph& graph, std::string_view after) {
  const std::vector<Violation> violations = find_violations(graph);
  if (violations.empty()) {
    return;
  }
  std::ostringstream out;
  out << "the graph is malformed after " << after;
  for (const Violation& violation : violations) {
    out << "\n  " << violation.check << ": " << violation.message;
  }
  out << "\n" << print(graph);
  SCONCE_ASSERT(violations.empty(), out.str());
}

}  // namespace sconce
