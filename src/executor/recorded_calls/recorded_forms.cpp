#include "executor/recorded_calls/recorded_forms.h"

#include "analysis/effects.h"
#include "analysis/matrix_products.h"
#include "autodiff/joint/build_nodes.h"
#include "passes/memory/remove_tensor_mutation.h"
#include "passes/required/eliminate_dead_nodes.h"

#include <algorithm>
#include <unordered_map>

namespace sconce {
namespace {

// Returns whether the node adds tensors of the same sizes, as autograd does where a value has several users.
bool is_sum_of_gradients(const Node& node) {
  const auto sizes = [](const Value& value) { return value.facts() != nullptr ? value.facts()->sizes : std::nullopt; };
  return node.opcode() == Opcode::kAdd && is_plain_sum(node) && sizes(*node.input(0)) == sizes(*node.input(1));
}

}  // namespace

std::unique_ptr<Graph> backward_of_form(const Graph& backward, const std::vector<Definedness>& gradients) {
  std::unique_ptr<Graph> graph = backward.clone();
  remove_tensor_mutation(*graph);
  std::unordered_map<const Value*, bool> is_defined;  // of what depends on gradients
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i] == Definedness::kSome) {
      return nullptr;
    }
    is_defined.emplace(graph->inputs()[i], gradients[i] == Definedness::kAll);
  }
  for (Node* node : graph->body().nodes()) {
    if (has_effects(*node)) {
      return nullptr;
    }
    size_t defined = 0;
    size_t undefined = 0;
    for (const Value* operand : node->inputs()) {
      if (const auto found = is_defined.find(operand); found != is_defined.end()) {
        ++(found->second ? defined : undefined);
      }
    }
    if (defined > 0 && undefined > 0) {
      if (!is_sum_of_gradients(*node)) {
        return nullptr;
      }
      node->output()->replace_all_uses_with(node->input(is_defined.at(node->input(0)) ? 0 : 1));
      continue;
    }
    for (const Value* output : node->outputs()) {
      if (defined + undefined > 0) {
        is_defined.emplace(output, defined > 0);
      }
    }
  }
  Value* none = insert_undefined(graph->body().return_node());
  for (size_t i = 0; i < graph->outputs().size(); ++i) {  // numbers that backward reads depend on no gradient
    if (const auto found = is_defined.find(graph->outputs()[i]); found != is_defined.end() && !found->second) {
      graph->body().set_return(i, none);
    }
  }
  eliminate_dead_nodes(*graph);
  return graph;
}

}  // namespace sconce
