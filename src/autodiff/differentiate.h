// Replaces slices of the graph by differentiable subgraphs, where gradients are recorded.
#pragma once

#include "ir/graph.h"
#include "passes/run_pass.h"

#include <sconce/explanation.h>

#include <c10/util/FunctionRef.h>

#include <cstddef>

namespace sconce {

// Replaces slices of the graph by sconce::differentiable nodes (ir/differentiable.h):
//
//   %a = aten::linear(%x, %w, %b)          %y = sconce::differentiable_0(%x, %w, %b)
//   %y = aten::tanh(%a)               →    with sconce::differentiable_0 = graph(%x, %w, %b): …
//                                          with sconce::differentiable_0 Backward = graph(%grad, %x, %w, %y): …
//
// Legal because the nodes of a slice may run together in the place of its last one (select/slice.h), and because the results
// that a user may see are outputs of the node. Views that are used outside are made again outside, of those outputs.
//
// `min_nodes`: slices with fewer nodes that a gradient flows through stay as they are.
// Branches and loops are nodes of a slice where select/differentiable_blocks.h allows it; else their blocks have slices of
// their own. The last iteration of a loop whose results a user may see is taken out of it. Does not: differentiate operators
// without a rule (rules/gradient_rule.h). Requires facts. Returns whether the graph changed. Fills `explanation`, but for
// its subgraphs. `run`: runs the passes that fold the graphs of gradients.
bool differentiate(Graph& graph, size_t min_nodes, GradientExplanation* explanation = nullptr, const RunPass& run = nullptr);
// The same with 2 nodes.
bool differentiate(Graph& graph);

// Calls `visit` for every sconce::differentiable node.
void for_each_differentiable(const Graph& graph, c10::function_ref<void(Node&)> visit);

}  // namespace sconce
