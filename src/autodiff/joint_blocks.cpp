// Gradients of branches and loops.
//
//   %h = prim::Loop(%n, %true, %h0)              %s = prim::ListConstruct()
//     block0(%i, %x):                              %h = prim::Loop(%n, %true, %h0)
//       %y = tanh(%x * %w)                   →       block0(%i, %x): … aten::append(%s, %y) … -> (%true, %y)
//       -> (%true, %y)                             %d0, %dw = prim::Loop(%n, %true, %dh, undefined)
//                                                    block0(%j, %dy, %sum):
//                                                      %y = %s[%n - 1 - %j]; %dx, %part = (backward of the body)
//                                                      -> (%true, %dx, %sum + %part)
#include "analysis/loop_trips.h"
#include "autodiff/build_nodes.h"
#include "autodiff/differentiable_nodes.h"
#include "autodiff/differentiation.h"
#include "base/assert.h"
#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <functional>

namespace sconce {
void Differentiation::enter_blocks(Node& node) {
  Differentiated each{Kind::kBlocks, &node, node.outputs().vec(), nullptr, {}, {}};
  const bool is_loop = node.opcode() == Opcode::kLoop;
  const bool counts = is_loop && !has_given_trips(node);
  for (size_t i = 0; i < node.blocks().size(); ++i) {
    each.blocks.push_back(differentiate_nested(
        node, i, [this](const Value* operand) { return is_reached(operand); },
        [this](const Value* list) { return is_joined(*list); }));
  }
  if (std::all_of(each.blocks.begin(), each.blocks.end(),
                  [](const BlockGradient& block) { return block.backward == nullptr; })) {
    return;
  }
  if (counts) {
    Value* trips = insert_empty_list(c10::IntType::get(), &node);
    insert_append(trips, node.block(0)->params()[0], node.block(0)->return_node());
    each.saved.push_back(insert_node(aten::len, {trips}, position_after(node), c10::IntType::get()));
  } else {
    each.saved.push_back(node.input(0));
  }
  note_block_dependences(each);
  if (is_loop) {
    note_loop_conditions(each, counts ? each.saved[0]->node() : &node);
  }
  tape_.push_back(std::move(each));
}

// Returns whether backward has a gradient of every element of the list: this graph joins them.
bool Differentiation::is_joined(const Value& list) const {
  for (size_t i = 0; i < joint_.is_joined.size(); ++i) {
    if (graph_.outputs()[i] == &list) {
      return joint_.is_joined[i];
    }
  }
  return std::any_of(list.uses().begin(), list.uses().end(), [](const Use& use) {
    return use.user->opcode() == Opcode::kStack || use.user->opcode() == Opcode::kCat;
  });
}

void Differentiation::differentiate_blocks(const Differentiated& each) {
  Gradients gradients;
  Value* is_there = nullptr;
  bool has_one = false;
  for (Value* result : each.results) {
    gradients.push_back(is_tensor(*result) && is_reached(result) ? complete_gradient(result) : Gradient{});
    if (gradients.back().value != nullptr) {
      is_there = has_one ? sums_.either(is_there, gradients.back().is_there) : gradients.back().is_there;
      has_one = true;
    }
  }
  for (const BlockGradient& block : each.blocks) {
    for (const Value* list : block.lists) {
      if (list_gradients_.contains(list)) {
        is_there = nullptr;
        has_one = true;
      }
    }
  }
  if (!has_one) {
    return;
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].value == nullptr && may_require_grad(*each.results[i])) {
      gradients[i].value = insert_zeros(each.results[i], end_);
    }
  }
  if (each.node->opcode() == Opcode::kLoop) {
    differentiate_loop(each, gradients, is_there);
  } else {
    differentiate_branches(each, gradients, is_there);
  }
}

Differentiation::Values Differentiation::instantiate_backward(const BlockGradient& block, const Values& of_return,
                                                              Value* visit, Node* position) {
  const Graph& backward = *block.backward;
  ValueMap values;
  size_t next = 0;
  const auto enter = [&](Value* value) { values[backward.inputs()[next++]] = value; };
  for (const int64_t output : block.outputs) {
    const auto number = static_cast<size_t>(output);
    if (number < of_return.size()) {
      enter(of_return[number]);
      continue;
    }
    const auto list = list_gradients_.find(block.lists[number - of_return.size()]);
    SCONCE_ASSERT(list != list_gradients_.end(), "a list that a loop fills has no gradient");
    enter(list->second.list);
  }
  for (const Value* stack : block.inner) {
    enter(insert_element(inner_.at(stack), visit, position));
  }
  for (const SavedValue& saved : block.saved) {
    enter(saved.kind == SavedValue::Kind::kOperand ? saved.value
          : saved.kind == SavedValue::Kind::kTrip  ? visit
                                                   : insert_element(saved.value, visit, position));
  }
  SCONCE_ASSERT(next == backward.inputs().size(), "the backward graph of a block has ", backward.inputs().size(), " inputs");
  return graph_.copy_nodes(backward.body(), position, values);
}

// Runs the iterations backward. Carries the gradients of what the loop carries, and sums of the gradients of operands.
void Differentiation::differentiate_loop(const Differentiated& each, const Gradients& gradients, Value* is_there) {
  const Node& forward = *each.node;
  const BlockGradient& body = each.blocks[0];
  const size_t params = forward.block(0)->params().size();
  Value* const always = graph_.insert_constant(true, end_);
  Value* const last = insert_node(aten::sub, {each.saved[0], graph_.insert_constant(1, end_)}, end_, c10::IntType::get());
  Values operands{each.saved[0], always};
  for (const int64_t input : body.inputs) {
    const auto number = static_cast<size_t>(input);
    operands.push_back(number < params ? gradients[number - 1].value : insert_node(prim::AutogradZero, {}, end_));
  }
  Node* const loop = graph_.create(prim::Loop, operands, body.inputs.size());
  loop->set_location(forward.location());
  loop->insert_before(end_);
  Block* const block = loop->add_block();
  Node* const end = block->return_node();
  Value* const trip = block->add_param(c10::IntType::get());
  Values of_return(params, nullptr);
  Values sums;
  for (const int64_t input : body.inputs) {
    sums.push_back(block->add_param(c10::TensorType::get()));
    if (static_cast<size_t>(input) < params) {
      of_return[static_cast<size_t>(input)] = sums.back();
    }
  }
  Value* const visit = insert_node(aten::sub, {last, trip}, end, c10::IntType::get());
  const Values parts = instantiate_backward(body, of_return, visit, end);
  block->add_return(always);
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_carried = static_cast<size_t>(body.inputs[i]) < params;
    block->add_return(is_carried ? parts[i]
                                 : insert_sum_of_gradients(*body.operands[static_cast<size_t>(body.inputs[i]) - params],
                                                           sums[i], parts[i], body.is_always_there[i], end));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto number = static_cast<size_t>(body.inputs[i]);
    if (number < params) {
      if (is_reached(forward.input(number + 1))) {
        sums_.add(forward.input(number + 1), {loop->output(i), is_there});
      }
      continue;
    }
    sums_.add_if_defined(body.operands[number - params], sums_.undefined_form({loop->output(i), is_there}).value);
  }
}

// Runs the backward of the branch that was taken. An operand that it does not use has no gradient.
void Differentiation::differentiate_branches(const Differentiated& each, const Gradients& gradients, Value* is_there) {
  Values operands;
  FlatMap<const Value*, size_t> always;  // the number of branches that always have the operand's gradient
  for (const BlockGradient& block : each.blocks) {
    for (size_t i = 0; i < block.inputs.size(); ++i) {
      Value* operand = block.operands[static_cast<size_t>(block.inputs[i])];
      if (std::find(operands.begin(), operands.end(), operand) == operands.end()) {
        operands.push_back(operand);
      }
      always[operand] += block.is_always_there[i] ? 1 : 0;
    }
  }
  Node* const branches = graph_.create(prim::If, {each.node->input(0)}, operands.size());
  branches->set_location(each.node->location());
  branches->insert_before(end_);
  Values of_return;
  std::transform(gradients.begin(), gradients.end(), std::back_inserter(of_return),
                 [](const Gradient& gradient) { return gradient.value; });
  for (const BlockGradient& block : each.blocks) {
    Block* const branch = branches->add_block();
    Node* const end = branch->return_node();
    const Values parts =
        block.backward == nullptr ? Values() : instantiate_backward(block, of_return, graph_.insert_constant(0, end), end);
    for (const Value* operand : operands) {
      const auto found = std::find_if(block.inputs.begin(), block.inputs.end(),
                                      [&](int64_t input) { return block.operands[static_cast<size_t>(input)] == operand; });
      branch->add_return(found == block.inputs.end() ? insert_node(prim::AutogradZero, {}, end)
                                                     : parts[static_cast<size_t>(found - block.inputs.begin())]);
    }
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    if (is_there == nullptr && always.at(operands[i]) == 2) {
      sums_.add(operands[i], {branches->output(i)});
      continue;
    }
    sums_.add_if_defined(operands[i], sums_.undefined_form({branches->output(i), is_there}).value);
  }
}

}  // namespace sconce
