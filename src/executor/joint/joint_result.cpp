#include "executor/joint/joint_result.h"

#include "executor/joint/joint_node.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>
#include <utility>

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

void JointResult::connect(const std::shared_ptr<JointNode>& call, const std::vector<at::Tensor>& results,
                          const std::vector<std::vector<size_t>>& below) {
  const bool has_below =
      std::any_of(below.begin(), below.end(), [](const std::vector<size_t>& others) { return !others.empty(); });
  std::vector<std::shared_ptr<JointResult>> nodes;
  for (size_t i = 0; i < results.size(); ++i) {
    nodes.emplace_back(new JointResult(*call, i, below[i]), torch::autograd::deleteNode);
    torch::autograd::impl::set_gradient_edge(results[i], {nodes.back(), nodes.back()->add_input_metadata(results[i])});
  }
  // Autograd wants a node's edges before others lead to it. A result is computed from more results than those below it are.
  std::vector<size_t> order(results.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&below](size_t a, size_t b) { return below[a].size() < below[b].size(); });
  for (const size_t i : order) {
    torch::autograd::edge_list edges = {{call, static_cast<uint32_t>(i)}};
    if (has_below) {
      edges.emplace_back(call, static_cast<uint32_t>(results.size() + i));
    }
    for (const size_t other : below[i]) {
      edges.emplace_back(nodes[other], 0);
    }
    nodes[i]->set_next_edges(std::move(edges));
  }
}

std::string JointResult::name() const { return call_.name(); }

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
  if (!is_seen_below()) {
    results[0] = std::move(gradients.front());
    return results;
  }
  const variable_list flows = call_.gradients_of_results(number_, gradients.front());
  for (size_t i = 0; i < below_.size(); ++i) {
    results[2 + i] = flows[below_[i]];
  }
  results[1] = std::move(gradients.front());
  return results;
}

}  // namespace sconce
