// The step of a recorded node (ir/recorded.h).
#pragma once

#include "plan/recorded/recorded_range.h"
#include "plan/steps/steps.h"

namespace sconce {

// Makes a step that runs the node's operators, or replays a recording of them (recorded_range.h). They run one by one, as if
// there were no such node, where autograd may record them, where somebody observes them, and where the device has no
// runtime.
StepPtr make_recorded_step(const Node& node, Operands operands, Registers results, RecordedNode parts);

// Returns what the step was made with; null for other steps.
const RecordedNode* recorded_node_of(const Step& step);

}  // namespace sconce
