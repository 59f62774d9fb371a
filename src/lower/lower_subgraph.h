// Lowers nodes that hold graphs of their own: delegates and differentiable subgraphs.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "lower/lower.h"
#include "plan/steps/steps.h"

namespace sconce {

// Makes the step of a delegate, differentiable or captured node, with the plans of its graphs.
//
// A differentiable node has two: forward, and backward for runs in which all gradients of outputs are defined. Backward
// of other runs is specialized and lowered when it is first asked for, with `options.optimize_backward`.
Expected<StepPtr> lower_subgraph(const Node& node, Operands operands, Registers results, const LoweringOptions& options);

// Returns whether lower_subgraph makes the node's step.
inline bool has_plans_of_its_own(const Node& node) {
  return node.opcode() == Opcode::kDelegate || node.opcode() == Opcode::kDifferentiable ||
         node.opcode() == Opcode::kCaptured;
}

}  // namespace sconce
