// Graph → Plan.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "plan/callees.h"
#include "plan/plan.h"
#include "plan/profile.h"

#include <memory>

namespace sconce {

// Requires: a verified graph. The plan keeps the graph alive. Refuses node kinds and operators that cannot be run, with the
// first such node. `callees`: what calls are answered by, outlives the plan; without it calls are refused. `profile`: of
// this very graph, filled by every run of the plan and outliving it.
Expected<std::unique_ptr<Plan>> lower(std::shared_ptr<const Graph> graph, Callees* callees = nullptr,
                                      Profile* profile = nullptr);

}  // namespace sconce
