// Lowers the graphs of a sconce::differentiable node.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "lower/lower.h"
#include "plan/autograd/differentiable_function.h"

#include <memory>

namespace sconce {

// Lowers forward, and backward for runs in which all gradients of outputs are defined. Backward of other runs is specialized
// and lowered when it is first asked for, with `options.optimize_backward`.
Expected<std::shared_ptr<const DifferentiableFunction>> lower_differentiable(const Node& node, LoweringOptions options);

}  // namespace sconce
