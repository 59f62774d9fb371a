// Lowers nodes that hold graphs of their own: delegates and differentiable subgraphs.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "lower/lower.h"
#include "plan/steps/steps.h"

namespace sconce {

// Makes the step of a prim::delegate or sconce::differentiable node, with the plans of its graphs.
//
// A differentiable node has two: forward, and backward for runs in which all gradients of outputs are defined. Backward
// of other runs is specialized and lowered when it is first asked for, with `options.optimize_backward`.
Expected<StepPtr> lower_subgraph(const Node& node, Operands operands, Registers results, const LoweringOptions& options);

}  // namespace sconce
