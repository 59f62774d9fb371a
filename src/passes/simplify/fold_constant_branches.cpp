#include "passes/simplify/fold_constant_branches.h"

#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

void replace_outputs(Node& node, c10::ArrayRef<Value*> replacements) {
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    node.output(i)->replace_all_uses_with(replacements[i]);
  }
  node.erase();
}

// Moves the nodes of a block without params to before the node around it.
void put_in_place(Node& node, Block& block) {
  const std::vector<Value*> results = block.returns().vec();
  for (Node* inner : block.nodes()) {
    inner->detach();
    inner->insert_before(&node);
  }
  replace_outputs(node, results);
}

// Returns whether the branches return True and False, which is the condition itself.
bool returns_the_condition(const Node& branch, size_t output) {
  return constant_bool(*branch.block(0)->returns()[output]) == true &&
         constant_bool(*branch.block(1)->returns()[output]) == false;
}

bool simplify_outputs(Node& branch) {
  bool changed = false;
  for (size_t i = 0; i < branch.outputs().size(); ++i) {
    Value* output = branch.output(i);
    Value* const either = branch.block(0)->returns()[i];
    Value* replacement = nullptr;
    if (either == branch.block(1)->returns()[i] && *either->type() == *output->type()) {
      replacement = either;  // defined outside: a branch cannot return a value of the other branch
    } else if (returns_the_condition(branch, i)) {
      replacement = branch.input(0);
    }
    if (replacement != nullptr && output->has_uses()) {
      output->replace_all_uses_with(replacement);
      changed = true;
    }
  }
  return changed;
}

bool runs_no_iteration(const Node& loop) {
  const auto* trips = loop.input(0)->constant();
  return (trips && trips->isInt() && trips->toInt() <= 0) || constant_bool(*loop.input(1)) == false;
}

// Replaces what the body returns as it was given. The loop keeps carrying it, as a value that nothing uses.
bool forward_unchanged(Node& loop) {
  bool changed = false;
  Block& body = *loop.block(0);
  for (size_t i = 0; i < loop.outputs().size(); ++i) {
    Value* const begin = loop.input(i + 2);
    Value* const param = body.params()[i + 1];
    if (body.returns()[i + 1] != param || *begin->type() != *param->type()) {
      continue;
    }
    for (Value* value : {param, loop.output(i)}) {
      changed |= value->uses().size() > (value == param ? 1U : 0U);
      value->replace_all_uses_with(begin);
    }
    body.set_return(i + 1, param);
  }
  return changed;
}

bool fold_branches_in(const Block& block) {
  bool changed = false;
  for (Node* node : block.nodes()) {
    for (const Block* nested : node->blocks()) {
      changed |= fold_branches_in(*nested);
    }
    if (node->kind() == prim::If) {
      if (const auto condition = constant_bool(*node->input(0))) {
        put_in_place(*node, *node->block(*condition ? 0 : 1));
        changed = true;
      } else {
        changed |= simplify_outputs(*node);
      }
    } else if (node->kind() == prim::Loop && runs_no_iteration(*node)) {
      replace_outputs(*node, node->inputs().slice(2));
      changed = true;
    } else if (node->kind() == prim::Loop) {
      changed |= forward_unchanged(*node);
    }
  }
  return changed;
}

}  // namespace

bool fold_constant_branches(Graph& graph) { return fold_branches_in(graph.body()); }

bool for_each_node_taking_branches(const Block& block, const std::function<void(Node*)>& visit) {
  bool took_a_branch = false;
  for_each_node(block, [&](Node* node) {
    const auto condition = node->kind() == prim::If ? constant_bool(*node->input(0)) : std::nullopt;
    if (!condition) {
      visit(node);
      return;
    }
    Block& taken = *node->block(*condition ? 0 : 1);
    for_each_node_taking_branches(taken, visit);
    put_in_place(*node, taken);
    took_a_branch = true;
  });
  return took_a_branch;
}

}  // namespace sconce
