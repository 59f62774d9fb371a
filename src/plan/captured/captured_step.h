// The step of a captured node (ir/captured.h).
#pragma once

#include "plan/captured/captured_range.h"
#include "plan/steps/steps.h"

namespace sconce {

// Makes a step that runs the node's operators, or replays a capture of them (captured_range.h). They run one by one, as if
// there were no such node, where autograd may record them, where somebody observes them, and where the device has no
// runtime.
StepPtr make_captured_step(const Node& node, Operands operands, Registers results, CapturedNode parts);

// Returns what the step was made with; null for other steps.
const CapturedNode* captured_node_of(const Step& step);

}  // namespace sconce
