// The verifier: checks that a graph is well formed. It has two layers of small named checks, and each check has a test that
// violates it.
#pragma once

#include "ir/graph.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sconce {

struct Violation {
  std::string_view check;  // the name of the check, "inputs_are_defined_before"
  std::string message;     // the fault and the node
};

using Check = void (*)(const Graph& graph, std::vector<Violation>& violations);
struct NamedCheck {
  std::string_view name;
  Check check;
};

// Uses, links, dominance, the shapes of prim::If and prim::Loop. A graph that fails here must not be analyzed.
std::span<const NamedCheck> structure_checks();
// Schemas, types, constants, facts.
std::span<const NamedCheck> typing_checks();

// Returns all violations; none means well formed. The typing layer runs only if the structure layer finds nothing.
std::vector<Violation> find_violations(const Graph& graph);

// Fails with `internal_error`, which shows the violations and the graph, if there are any. `after` names the pass or stage.
void verify(const Graph& graph, std::string_view after);

}  // namespace sconce
