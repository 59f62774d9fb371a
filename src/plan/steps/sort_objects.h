// The step for `sort` and `sorted` of lists that hold script objects.
#pragma once

#include "plan/callees.h"
#include "plan/steps/steps.h"

namespace sconce {

// Returns whether the node sorts a list of objects, or of tuples that hold objects.
bool sorts_objects(const Node& node);

// Makes the step. LibTorch's operator compares objects by running `__lt__` on its executor (rule R7); this step runs it on a
// plan. As in LibTorch, the order is that of std::sort: the order of equal elements is unspecified, but always the same.
// Requires sorts_objects(node).
StepPtr make_sort_step(const Node& node, Operands operands, Registers results, Callees& callees);

}  // namespace sconce
