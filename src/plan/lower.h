// Graph → Plan.
#pragma once

#include "ir/graph.h"
#include "ir/refusal.h"
#include "plan/plan.h"

#include <memory>

namespace sconce {

// Requires: a verified graph without calls. The plan keeps the graph alive. Refuses node kinds and operators that cannot
// be run, with the first such node.
OrRefusal<std::unique_ptr<Plan>> lower(std::shared_ptr<const Graph> graph);

}  // namespace sconce
