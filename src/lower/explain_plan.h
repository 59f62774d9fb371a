// Explains a plan: its steps, which operators are prepared, why others are not, where local tensors lie, and its
// differentiable subgraphs.
#pragma once

#include "plan/plan.h"

#include <sconce/explanation.h>

namespace sconce {

// Sets the fields that the plan itself knows. `source`: the line of nodes that have none of their own.
void explain_plan(const Plan& plan, PlanExplanation& explanation, const std::string& source = {});

}  // namespace sconce
