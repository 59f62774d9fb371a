// sort and sorted of lists that hold objects of script classes.
#pragma once

#include "plan/callees.h"
#include "plan/steps/steps.h"

namespace sconce {

// Whether the node sorts a list of objects, or of tuples that hold objects.
bool sorts_objects(const Node& node);

// LibTorch's own operator compares objects by running `__lt__` on its executor (rule R7); this step runs it on a plan. As
// there, the order is that of std::sort, which leaves equal elements in no particular, but always the same, order.
// Requires sorts_objects(node).
StepPtr make_sort_step(const Node& node, Operands operands, Registers results, Callees& callees);

}  // namespace sconce
