// The engine's treatment of one autograd node: its hooks, its formula, and the checks after it.
#pragma once

#include "trace/history.h"

#include <torch/csrc/autograd/engine.h>

namespace sconce {

// Calls the hooks of the tensors whose gradients the node takes. `retain_grad()` is one of them.
torch::autograd::variable_list call_tensor_hooks(torch::autograd::Node& node, torch::autograd::variable_list gradients);
// Calls these, then the hooks before the node.
torch::autograd::variable_list call_hooks_before(torch::autograd::Node& node, torch::autograd::variable_list gradients);
// Calls the hooks after the node. `given`: what it was called with.
torch::autograd::variable_list call_hooks_after(torch::autograd::Node& node, torch::autograd::variable_list results,
                                                const torch::autograd::variable_list& given);

// Calls the node itself, and fits its results to the tensors that they are gradients of. Throws what the engine throws for
// results that do not fit. Without `keeps_graph`, the node forgets what it has saved.
torch::autograd::variable_list call_node(torch::autograd::Node& node, torch::autograd::variable_list gradients,
                                         bool keeps_graph);
void fit_results(const torch::autograd::Node& node, torch::autograd::variable_list& results);

// Adds up gradients that arrive at one place, as the engine does.
at::Tensor sum_of_gradients(const at::Tensor& sum, const at::Tensor& gradient);

// Returns whether a node of the history of `tensors` has a hook (for_each_in_history).
bool history_has_hooks(const torch::autograd::variable_list& tensors, const std::vector<torch::autograd::Node*>& ends = {});

bool has_tensor_hooks(torch::autograd::Node& node);
bool has_hooks_before(torch::autograd::Node& node);
bool has_hooks_after(torch::autograd::Node& node);

}  // namespace sconce
