// Which inputs of a graph that is differentiated a value depends on.
#include "autodiff/joint/build_nodes.h"
#include "autodiff/joint/joint_graph_builder.h"
#include "autodiff/select/roles.h"
#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {

void JointGraphBuilder::note_dependence(const Node& node, const Values& results) {
  Dependence all(joint_.signature.inputs.size());
  for (const Value* operand : node.inputs()) {
    if (is_reached(operand)) {
      merge(all, dependences_.at(operand));
    }
  }
  for (const Value* result : results) {
    if (may_require_grad(*result) || !is_tensor(*result)) {
      note(result, all);
    }
  }
  note_condition(node, results);
}

// Where an operand depends on fewer inputs if a condition does not hold, so do the results.
void JointGraphBuilder::note_condition(const Node& node, const Values& results) {
  Condition condition{nullptr, Dependence(joint_.signature.inputs.size())};
  for (const Value* operand : node.inputs()) {
    if (!is_reached(operand)) {
      continue;
    }
    const auto found = conditions_.find(operand);
    merge(condition.otherwise, found == conditions_.end() ? dependences_.at(operand) : found->second.otherwise);
    if (found != conditions_.end()) {
      condition.holds = condition.holds == nullptr ? found->second.holds
                                                   : insert_node(aten::__or__, {condition.holds, found->second.holds},
                                                                 results[0]->node(), c10::BoolType::get());
    }
  }
  for (const Value* result : results) {
    if (condition.holds != nullptr && !requires_grad(*result)) {
      conditions_[result] = condition;
    }
  }
}

void JointGraphBuilder::note(const Value* value, Dependence dependence) {
  if (std::find(dependence.begin(), dependence.end(), true) == dependence.end()) {
    return;
  }
  Dependence& known = dependences_[value];
  known.resize(dependence.size());
  merge(known, dependence);
}

// Iterates, because what a loop carries depends on what it carried before.
void JointGraphBuilder::note_block_dependences(const Differentiated& each) {
  Node& node = *each.node;
  const bool is_loop = node.opcode() == Opcode::kLoop;
  const size_t first_return = is_loop ? 1 : 0;  // the first return of a body is its condition
  const auto dependence_of = [&](const Value* value) {
    const auto found = dependences_.find(value);
    return found == dependences_.end() ? Dependence(joint_.signature.inputs.size()) : found->second;
  };
  for (size_t i = 0; is_loop && i < node.outputs().size(); ++i) {
    if (may_require_grad(*node.output(i))) {
      note(node.output(i), dependence_of(node.input(i + 2)));
    }
  }
  for (size_t iteration = 0; iteration <= node.outputs().size() + 1; ++iteration) {
    for (size_t i = 0; i < each.blocks.size(); ++i) {
      const BlockGradient& block = each.blocks[i];
      const size_t params = node.block(i)->params().size();
      const size_t returns = node.block(i)->returns().size();
      for (const auto& [output, reaches, otherwise] : block.signature.outputs) {
        const Value* result = output < returns ? node.output(output - first_return) : block.lists[output - returns];
        for (size_t column = 0; column < reaches.size(); ++column) {
          const size_t from = block.signature.inputs[column];
          if (reaches[column]) {
            note(result, dependence_of(from < params ? node.output(from - 1) : block.operands[from - params]));
          }
        }
      }
    }
  }
}

// A loop that runs no iteration returns what it was given. `counted`: after this node the number of iterations is known.
void JointGraphBuilder::note_loop_conditions(const Differentiated& each, Node* counted) {
  const Node& loop = *each.node;
  Node* const position = position_after(*counted);
  for (size_t i = 0; i < loop.outputs().size(); ++i) {
    const Value* begin = loop.input(i + 2);
    if (!is_reached(loop.output(i)) || requires_grad(*begin)) {
      continue;
    }
    Value* const zero = graph_.insert_constant(0, position);
    Condition condition{insert_node(aten::gt, {each.saved[0], zero}, position, c10::BoolType::get()),
                        Dependence(joint_.signature.inputs.size())};
    if (const auto before = conditions_.find(begin); before != conditions_.end()) {
      condition = {insert_node(aten::__or__, {condition.holds, before->second.holds}, position, c10::BoolType::get()),
                   before->second.otherwise};
    } else if (is_reached(begin)) {
      condition.otherwise = dependences_.at(begin);
    }
    conditions_[loop.output(i)] = std::move(condition);
  }
}

}  // namespace sconce
