// Compares a recorded gradient with autograd.
#pragma once

#include "ir/graph.h"
#include "ops/op.h"

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace sconce {

// Runs a graph without loops one node after the other. Autograd records it if it records.
std::vector<c10::IValue> run_node_by_node(const Graph& graph, const std::vector<c10::IValue>& inputs);

// Returns how `backward` (OpGradient::backward) differs from autograd in a call, or an empty string. A call that the
// operator rejects is no difference. `required`: per argument, whether it requires a gradient.
std::string difference_from_autograd(const Op& op, const Graph& backward, const std::vector<c10::IValue>& arguments,
                                     const std::vector<bool>& required);

}  // namespace sconce
