#include "passes/required/specialize_backward.h"

#include "base/assert.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/required/lower_grad_of.h"
#include "passes/required/specialize_autograd_zero.h"
#include "passes/simplify/fold_constant_branches.h"

#include <ATen/core/jit_type.h>

#include <numeric>

namespace sconce {
namespace {

// States whether the tensor, or every tensor in the list, is defined.
void set_defined(Value& value, bool is_defined) {
  if (value.type()->kind() == c10::TypeKind::TensorType) {
    TensorFacts facts = value.facts() != nullptr ? *value.facts() : TensorFacts{};
    facts.defined = is_defined;
    value.set_facts(std::move(facts));
    return;
  }
  for (const Use& use : value.uses()) {
    if (use.user->opcode() == Opcode::kGetItem) {
      set_defined(*use.user->output(), is_defined);
    }
  }
}

}  // namespace

void remove_undefined_inputs(Graph& graph, const std::vector<size_t>& positions) {
  for (const size_t position : positions) {
    set_defined(*graph.inputs()[position], false);
  }
  specialize_autograd_zero(graph);
  fold_constant_branches(graph);
  eliminate_dead_nodes(graph);
  for (auto position = positions.rbegin(); position != positions.rend(); ++position) {
    SCONCE_ASSERT(!graph.inputs()[*position]->has_uses(), "backward reads a gradient that is undefined");
    graph.body().remove_param(*position);
  }
}

std::shared_ptr<Graph> specialize_backward(const Graph& general, size_t intermediates, const BackwardForm& form) {
  std::shared_ptr<Graph> graph = general.clone();
  const size_t outputs = form.gradients.size();
  for (size_t i = 0; i < outputs; ++i) {
    if (form.gradients[i] != Definedness::kSome) {
      set_defined(*graph->inputs()[i], form.gradients[i] == Definedness::kAll);
    }
  }
  Value* records = graph->inputs()[outputs + intermediates];
  if (records->has_uses()) {
    records->replace_all_uses_with(graph->insert_constant(form.records, graph->body().first()));
  }
  graph->body().remove_param(outputs + intermediates);
  std::vector<size_t> removed(form.records ? 0 : intermediates);
  std::iota(removed.begin(), removed.end(), outputs);
  remove_undefined_inputs(*graph, removed);
  lower_grad_of(*graph);
  return graph;
}

}  // namespace sconce
