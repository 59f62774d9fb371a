#include "executor/recorded_calls/recorded_forms.h"

#include "analysis/effects.h"
#include "analysis/matrix_products.h"
#include "analysis/memory/memory_source.h"
#include "autodiff/joint/build_nodes.h"
#include "passes/memory/remove_tensor_mutation.h"
#include "passes/required/eliminate_dead_nodes.h"

#include <algorithm>
#include <ranges>
#include <unordered_map>

namespace sconce {
namespace {

// Returns whether the node adds tensors of the same sizes, as autograd does where a value has several users.
bool is_sum_of_gradients(const Node& node) {
  const auto sizes = [](const Value& value) { return value.facts() != nullptr ? value.facts()->sizes : std::nullopt; };
  return node.opcode() == Opcode::kAdd && is_plain_sum(node) && sizes(*node.input(0)) == sizes(*node.input(1));
}

// Returns whether the node has no effect but to write memory that the graph has made.
bool writes_new_memory_alone(const Node& node) {
  const Effects effects = effects_of(node);
  if (effects.random || effects.external || effects.state || effects.unknown || !node.blocks().empty()) {
    return false;
  }
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const Value& base = base_of_memory(*node.input(i));
    if (may_write_operand(node, i) && base.node() == base.node()->graph().body().param_node()) {
      return false;
    }
  }
  return true;
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
  std::vector<Node*> writes_of_nothing;  // to what is undefined
  for (Node* node : graph->body().nodes()) {
    size_t defined = 0;
    size_t undefined = 0;
    for (const Value* operand : node->inputs()) {
      if (const auto found = is_defined.find(operand); found != is_defined.end()) {
        ++(found->second ? defined : undefined);
      }
    }
    if (has_effects(*node)) {
      if (!writes_new_memory_alone(*node)) {
        return nullptr;
      }
      // A gradient that is written into other memory comes from there again, under names that say nothing of it.
      const auto is_other = [&](size_t i) { return may_write_operand(*node, i) && !is_defined.contains(node->input(i)); };
      const auto operands = std::views::iota(size_t{0}, node->inputs().size());
      if (defined + undefined > 0 && (std::ranges::any_of(operands, is_other) || (defined > 0 && undefined > 0))) {
        return nullptr;
      }
      if (undefined > 0) {
        writes_of_nothing.push_back(node);
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
  for (Node* node : writes_of_nothing) {
    for (Value* output : node->outputs()) {
      output->replace_all_uses_with(node->input(0));
    }
    node->erase();
  }
  eliminate_dead_nodes(*graph);
  return graph;
}

}  // namespace sconce
