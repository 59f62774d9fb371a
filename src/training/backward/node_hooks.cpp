#include "training/backward/node_hooks.h"

#include "trace/tracing_conditions.h"

#include <ATen/ops/add.h>

#include <string>
#include <unordered_set>
#include <utility>

namespace sconce {

using torch::autograd::variable_list;

variable_list call_tensor_hooks(torch::autograd::Node& node, variable_list gradients) {
  for (const auto& hook : node.tensor_pre_hooks()) {
    gradients = (*hook)(std::move(gradients));
  }
  for (const auto& [output, hook] : node.retains_grad_hooks()) {
    gradients = (*hook)(std::move(gradients));
  }
  return gradients;
}

variable_list call_hooks_before(torch::autograd::Node& node, variable_list gradients) {
  gradients = call_tensor_hooks(node, std::move(gradients));
  for (const auto& hook : node.pre_hooks()) {
    gradients = (*hook)(std::move(gradients));
  }
  return gradients;
}

variable_list call_hooks_after(torch::autograd::Node& node, variable_list results, const variable_list& given) {
  for (const auto& hook : node.post_hooks()) {
    results = (*hook)(std::move(results), given);
  }
  return results;
}

variable_list call_node(torch::autograd::Node& node, variable_list gradients, bool keeps_graph) {
  if (!keeps_graph) {
    node.will_release_variables();
  }
  variable_list results = node(std::move(gradients));
  fit_results(node, results);
  if (!keeps_graph) {
    node.release_variables();
  }
  return results;
}

void fit_results(const torch::autograd::Node& node, variable_list& results) {
  torch::autograd::validate_outputs(node.next_edges(), results, [&](const std::string& message) {
    return "Function " + node.name() + " returned an " + message;
  });
}

at::Tensor sum_of_gradients(const at::Tensor& sum, const at::Tensor& gradient) {
  if (!sum.defined()) {
    return gradient;
  }
  return sum.layout() == c10::kStrided ? at::add(sum, gradient) : at::add(gradient, sum);
}

bool history_has_hooks(const variable_list& tensors, const std::vector<torch::autograd::Node*>& ends) {
  bool has_hooks = false;
  for_each_in_history(tensors, ends, [&](torch::autograd::Node& node) {
    has_hooks = has_hooks || has_hooks_before(node) || has_hooks_after(node);
  });
  return has_hooks;
}

bool has_tensor_hooks(torch::autograd::Node& node) {
  return count_hooks(node.tensor_pre_hooks()) != 0 || !node.retains_grad_hooks().empty();
}
bool has_hooks_before(torch::autograd::Node& node) { return has_tensor_hooks(node) || !node.pre_hooks().empty(); }
bool has_hooks_after(torch::autograd::Node& node) { return !node.post_hooks().empty(); }

}  // namespace sconce
