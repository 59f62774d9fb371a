#include "trace/history.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace sconce {
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

void for_each_in_history(const torch::autograd::variable_list& tensors, const std::vector<torch::autograd::Node*>& ends,
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

std::vector<at::Tensor> leaves_of(const torch::autograd::variable_list& tensors) {
  std::vector<at::Tensor> leaves;
  for_each_in_history(tensors, {}, [&](torch::autograd::Node& node) {
    if (const auto* accumulation = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node)) {
      leaves.push_back(accumulation->variable);
    }
  });
  return leaves;
}

RequiredGradients::RequiredGradients(const std::vector<at::Tensor>& leaves) {
  for (const at::Tensor& leaf : leaves) {
    if (!leaf.requires_grad()) {
      leaf.set_requires_grad(true);
      changed_.push_back(leaf);
    }
  }
}

RequiredGradients::~RequiredGradients() {
  for (const at::Tensor& leaf : changed_) {
    leaf.set_requires_grad(false);
  }
}

}  // namespace sconce
