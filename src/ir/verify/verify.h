// Checks that a graph is well formed. Two layers of small named checks; each check has a test that violates it.
#pragma once

#include "ir/graph.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sconce {

struct Violation {
  std::string_view check;  // the name of the check, "inputs_are_defined_before"
  std::string message;     // what is wrong and with which node
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

// All violations; the typing layer runs only when the structure is sound. Empty means well formed.
std::vector<Violation> find_violations(const Graph& graph);

// Ends in `internal_error` with the violations and the graph when there are any. `after` names the pass or stage.
void verify(const Graph& graph, std::string_view after);

}  // namespace sconce
