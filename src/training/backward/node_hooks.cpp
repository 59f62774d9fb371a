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

namespace {

// Returns whether the tensor is a view of which autograd refuses to make a history (one made without gradients, and written
// since). To ask for its node raises, and only the caller may ask.
bool is_written_without_history(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
  return meta != nullptr && !tensor.is_inference() && meta->has_bw_view() &&
         meta->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT &&
         meta->get_attr_version() != tensor._version();
}

}  // namespace

void for_each_in_history(const variable_list& tensors, const std::vector<torch::autograd::Node*>& ends,
                         c10::function_ref<void(torch::autograd::Node&)> visit) {
  std::vector<torch::autograd::Node*> reached;
  std::unordered_set<torch::autograd::Node*> seen(ends.begin(), ends.end());
  const auto reach = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) {
      reached.push_back(node);
    }
  };
  for (const at::Tensor& tensor : tensors) {
    reach(tensor.defined() && !is_written_without_history(tensor) ? tensor.grad_fn().get() : nullptr);
  }
  while (!reached.empty()) {
    torch::autograd::Node* node = reached.back();
    reached.pop_back();
    visit(*node);
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      reach(edge.function.get());
    }
  }
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
