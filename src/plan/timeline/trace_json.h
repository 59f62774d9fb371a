// Recorded steps in the JSON format of Chrome and Perfetto.
#pragma once

#include "plan/timeline/step_timer.h"

#include <string>

namespace sconce {

// Returns "aten::add", or what a step does that is not one operator.
std::string name_of(const TimedPlan::Step& step);
// Returns "model.py:12:8", or an empty string.
std::string source_of(const TimedPlan::Step& step);

// Returns the trace. Requires: the timer is stopped.
std::string trace_json(const StepTimer& timer);

}  // namespace sconce
