#include "passes/required/lower_grad_of.h"

#include "ir/schema_match.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

void lower(Graph& graph, Node* grad_of) {
  Node* any = graph.create(prim::AutogradAnyNonZero, grad_of->inputs(), 0);
  any->add_output(c10::BoolType::get());
  resolve(*any);
  any->insert_before(grad_of);

  Node* branch = graph.create(prim::If, {any->output()}, 0);
  branch->set_location(grad_of->location());
  branch->insert_before(grad_of);
  Block& computed = *branch->add_block();
  for (Value* result : graph.repeat_nodes(*grad_of->block(0), {}, computed.return_node())) {
    computed.add_return(result);
  }
  Block& zeros = *branch->add_block();
  for (Value* output : grad_of->outputs()) {
    Node* zero = graph.create(prim::AutogradZero, {}, 1);
    resolve(*zero);
    zero->append_to(zeros);
    zeros.add_return(zero->output());
    Value* replacement = branch->add_output(output->type());
    replacement->set_name(output->name());
    output->replace_all_uses_with(replacement);
  }
  grad_of->erase();
}

}  // namespace

bool lower_grad_of(Graph& graph) {
  bool changed = false;
  // A GradOf inside a GradOf is copied out with its block, so repeat until none is left.
  for (bool found = true; found;) {
    found = false;
    for_each_node(graph.body(), [&](Node* node) {
      if (node->kind() == prim::GradOf) {
        lower(graph, node);
        found = changed = true;
      }
    });
  }
  return changed;
}

}  // namespace sconce
