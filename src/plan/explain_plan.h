// Explains a plan: which operators are prepared, why others are not, and where local tensors lie.
#pragma once

#include "plan/plan.h"

#include <sconce/explanation.h>

namespace sconce {

// Sets the fields about prepared steps and memory.
void explain_steps(const Plan& plan, PlanExplanation& explanation);

}  // namespace sconce
