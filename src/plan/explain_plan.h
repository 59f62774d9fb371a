// Explains a plan: its steps, which operators are prepared, why others are not, where local tensors lie, and its
// differentiable subgraphs.
#pragma once

#include "plan/plan.h"

#include <sconce/explanation.h>

namespace sconce {

// Sets the fields that the plan itself knows.
void explain_plan(const Plan& plan, PlanExplanation& explanation);

}  // namespace sconce
