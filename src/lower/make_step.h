// Makes the step of a node.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "lower/lower.h"
#include "plan/callees.h"
#include "plan/steps/steps.h"

namespace sconce {

// Refuses node kinds and operators that cannot run. `sizes_may_change`: a node of the graph may change the sizes of an
// existing tensor.
Expected<StepPtr> make_step(const Node& node, const Operands& operands, const Registers& results, Callees* callees,
                            bool sizes_may_change, const LoweringOptions& options);

}  // namespace sconce
