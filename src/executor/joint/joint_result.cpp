#include "executor/joint/joint_result.h"

#include "executor/joint/joint_node.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace sconce {
namespace {

using torch::autograd::variable_list;

// Returns whether a hook or the caller of autograd::grad sees what the node takes.
bool is_seen(torch::autograd::Node& node) {
  if (!node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() || !node.pre_hooks().empty() ||
      !node.post_hooks().empty()) {
    return true;
  }
  const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
  if (wanted == nullptr) {
    return false;
  }
  const auto found = wanted->find(&node);
  return found != wanted->end() && found->second.captures_ != nullptr;
}

}  // namespace

// The groups' nodes come first: the engine runs those of results before them.
void JointResult::connect(const std::shared_ptr<JointNode>& call, const std::vector<at::Tensor>& results,
                          const torch::autograd::edge_list& edges, const JointPlans& plans) {
  std::vector<torch::autograd::edge_list> edges_of_results(results.size());
  for (const JointPlans::Group& group : plans.groups) {
    torch::autograd::edge_list of_group;
    for (const size_t tensor : group.tensors) {
      of_group.push_back(edges[tensor]);
    }
    const std::shared_ptr<Node> inputs(new JointInputs(call, group, std::move(of_group)), torch::autograd::deleteNode);
    inputs->add_input_metadata(results.front());
    for (const size_t result : group.results) {
      edges_of_results[result].emplace_back(inputs, 0);
    }
  }
  std::vector<std::shared_ptr<JointResult>> nodes;
  for (size_t i = 0; i < results.size(); ++i) {
    nodes.emplace_back(new JointResult(call, i, plans.below[i]), torch::autograd::deleteNode);
    torch::autograd::impl::set_gradient_edge(results[i], {nodes.back(), nodes.back()->add_input_metadata(results[i])});
    call->add_node(nodes.back());
  }
  // Autograd wants a node's edges before others lead to it.
  for (const size_t i : plans.from_lowest) {
    for (const size_t other : plans.below[i]) {
      edges_of_results[i].emplace_back(nodes[other], 0);
    }
    nodes[i]->set_next_edges(std::move(edges_of_results[i]));
  }
}

std::string JointResult::name() const { return call_->name(); }

bool JointResult::is_seen_below() const {
  const torch::autograd::edge_list& edges = next_edges();
  return std::any_of(edges.end() - static_cast<std::ptrdiff_t>(below_.size()), edges.end(),
                     [](const torch::autograd::Edge& edge) { return is_seen(*edge.function); });
}

variable_list JointResult::apply(variable_list&& gradients) {
  variable_list results(next_edges().size());
  if (!gradients.front().defined()) {
    return results;
  }
  const bool is_seen = is_seen_below();
  if (is_seen) {
    variable_list flows = call_->gradients_of_results(number_, gradients.front());
    const size_t groups = results.size() - below_.size();
    for (size_t i = 0; i < below_.size(); ++i) {
      results[groups + i] = std::move(flows[below_[i]]);
    }
  }
  call_->bring(number_, std::move(gradients.front()), /*ends_at_results=*/is_seen);
  return results;
}

variable_list JointInputs::apply(variable_list&& /*gradients*/) { return call_->take(group_, releases_); }

std::string JointInputs::name() const { return call_->name(); }

}  // namespace sconce
