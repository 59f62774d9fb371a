#include "fusion/group/raise_reductions.h"

#include "analysis/effects.h"
#include "fusion/group/form_groups.h"
#include "fusion/program/reductions.h"
#include "ir/constant_operands.h"

#include <algorithm>
#include <vector>

namespace sconce {
namespace {

bool may_rise(const Node& reduction, const Node& source) {
  return source.owning_block() == reduction.owning_block() && has_constant_arguments(reduction) &&
         role_in_group(source) == GroupRole::kPointwise && role_in_group(reduction) == GroupRole::kReduction;
}

// Moves the reduction and the constants that it uses. Returns whether it moved past an operator.
bool raise(Node& reduction, Node& source) {
  std::vector<Node*> constants;
  bool passes_operator = false;
  for (Node* node = reduction.previous(); node != &source; node = node->previous()) {
    const auto inputs = reduction.inputs();
    if (node->opcode() != Opcode::kConstant) {
      passes_operator = true;
      if (!node->blocks().empty() || effects_of(*node).any()) {
        return false;
      }
    } else if (std::find(inputs.begin(), inputs.end(), node->output()) != inputs.end()) {
      constants.push_back(node);
    }
  }
  if (!passes_operator) {
    return false;
  }
  reduction.detach();
  reduction.insert_after(&source);
  for (Node* constant : constants) {
    constant->detach();
    constant->insert_after(&source);
  }
  return true;
}

bool raise_reductions(const Block& block) {
  bool changed = false;
  for (Node* node : block.nodes()) {
    for (const Block* nested : node->blocks()) {
      changed = raise_reductions(*nested) || changed;
    }
    if (node->schema() != nullptr && may_reduce(node->op()) && may_rise(*node, *node->input(0)->node())) {
      changed = raise(*node, *node->input(0)->node()) || changed;
    }
  }
  return changed;
}

}  // namespace

bool raise_reductions(Graph& graph) { return raise_reductions(graph.body()); }

}  // namespace sconce
