// Gradients of branches and loops.
//
//   %h = prim::Loop(%n, %true, %h0)              %s = prim::ListConstruct()
//     block0(%i, %x):                              %h = prim::Loop(%n, %true, %h0)
//       %y = tanh(%x * %w)                   →       block0(%i, %x): … aten::append(%s, %y) … -> (%true, %y)
//       -> (%true, %y)                             %d0, %dw = prim::Loop(%n, %true, %dh, undefined)
//                                                    block0(%j, %dy, %sum):
//                                                      %y = %s[%n - 1 - %j]; %dx, %part = (backward of the body)
//                                                      -> (%true, %dx, %sum + %part)
#include "analysis/counted_loop.h"
#include "autodiff/joint/build_nodes.h"
#include "autodiff/joint/joint_graph_builder.h"
#include "autodiff/select/roles.h"
#include "base/assert.h"
#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
void JointGraphBuilder::enter_blocks(Node& node) {
  Differentiated each{Kind::kBlocks, &node, node.outputs().vec(), nullptr, {}, {}};
  const bool is_loop = node.opcode() == Opcode::kLoop;
  const bool counts = is_loop && !is_counted_loop(node);
  for (size_t i = 0; i < node.blocks().size(); ++i) {
    const auto reaches = [this](const Value* operand) { return is_reached(operand); };
    each.blocks.push_back(differentiate_nested(node, i, reaches, joint_.run));
  }
  if (std::ranges::all_of(each.blocks, [](const BlockGradient& block) { return block.backward == nullptr; })) {
    return;
  }
  if (counts) {
    Value* iterations = insert_empty_list(c10::IntType::get(), &node);
    insert_append(iterations, node.block(0)->params()[0], node.block(0)->return_node());
    each.saved.push_back(insert_node(aten::len, {iterations}, position_after(node), c10::IntType::get()));
  } else {
    each.saved.push_back(node.input(0));
  }
  note_block_dependences(each);
  if (is_loop) {
    note_loop_conditions(each, counts ? each.saved[0]->node() : &node);
  }
  tape_.push_back(std::move(each));
}

void JointGraphBuilder::differentiate_blocks(const Differentiated& each) {
  Gradients gradients;
  bool has_one = false;
  for (Value* result : each.results) {
    gradients.push_back(is_tensor(*result) && is_reached(result) ? complete_gradient(result) : Gradient{});
    has_one = has_one || gradients.back().value != nullptr;
  }
  for (const BlockGradient& block : each.blocks) {
    has_one =
        has_one || std::ranges::any_of(block.lists, [this](const Value* list) { return list_gradients_.contains(list); });
  }
  if (!has_one) {
    return;
  }
  if (each.node->opcode() == Opcode::kLoop) {
    differentiate_loop(each, gradients);
  } else {
    differentiate_branches(each, gradients);
  }
}

JointGraphBuilder::Values JointGraphBuilder::instantiate_backward(const BlockGradient& block, const Values& of_return,
                                                                  Value* iteration, Node* position) {
  const Graph& backward = *block.backward;
  ValueMap values;
  size_t next = 0;
  const auto enter = [&](Value* value) { values[backward.inputs()[next++]] = value; };
  for (const GradientSignature::Output& output : block.signature.outputs) {
    if (output.position < of_return.size()) {
      enter(of_return[output.position]);
      continue;
    }
    Value* list = block.lists[output.position - of_return.size()];
    const auto found = list_gradients_.find(list);
    enter(found == list_gradients_.end() ? insert_undefined_list(list, position) : found->second.list);
  }
  for (const Value* list : block.intermediates) {
    enter(insert_element(gradients_of_intermediates_.at(list), iteration, position));
  }
  enter(records_);
  for (const SavedValue& saved : block.saved) {
    enter(saved.kind == SavedValue::Kind::kOperand     ? saved.value
          : saved.kind == SavedValue::Kind::kIteration ? iteration
                                                       : insert_element(saved.value, iteration, position));
  }
  SCONCE_ASSERT(next == backward.inputs().size(), "the backward graph of a block has ", backward.inputs().size(), " inputs");
  return graph_.copy_nodes(backward.body(), position, values);
}

// Returns the gradient with which backward of a loop begins, of a result that has none: zeros where one of the sources is
// defined and every gradient of `param`, which carries it, is a sum with another. That other is defined in the first
// iteration too, so that the iterations need not differ. Elsewhere an undefined tensor.
Value* JointGraphBuilder::initial_gradient(const Value& param, Value* result, const std::vector<Value*>& sources,
                                           Node* position) {
  const bool is_only_added =
      std::ranges::all_of(param.uses(), [](const Use& use) { return use.user->kind() == prim::AutogradAdd; });
  if (!is_only_added || sources.empty() || !is_real_tensor(*result)) {
    return insert_undefined(position);
  }
  Value* sizes = insert_sizes(result, position);
  Node* choice = graph_.create(prim::If, {insert_any_defined(sources, position)}, 0);
  choice->insert_before(position);
  Block* zeros = choice->add_block();
  zeros->add_return(insert_zeros(result, sizes, zeros->return_node()));
  Block* undefined = choice->add_block();
  undefined->add_return(insert_undefined(undefined->return_node()));
  return choice->add_output(c10::TensorType::get());
}

// Runs the iterations backward. The loop of backward carries one gradient per differentiable input of the body: that of a
// param goes from iteration to iteration, as the gradient of what the iteration before returned; that of an operand is a sum
// over the iterations.
void JointGraphBuilder::differentiate_loop(const Differentiated& each, const Gradients& gradients) {
  const Node& forward = *each.node;
  const BlockGradient& body = each.blocks[0];
  const size_t params = forward.block(0)->params().size();
  std::vector<Value*> sources = sources_of(gradients);
  for (const Value* list : body.lists) {
    if (const auto found = list_gradients_.find(list); found != list_gradients_.end()) {
      merge_sources(sources, found->second.sources);
    }
  }
  Value* const always = graph_.insert_constant(true, end_);
  Value* const last = insert_node(aten::sub, {each.saved[0], graph_.insert_constant(1, end_)}, end_, c10::IntType::get());
  Values operands{each.saved[0], always};
  for (const size_t input : body.signature.inputs) {
    Value* carried = input < params ? gradients[input - 1].value : nullptr;
    operands.push_back(carried != nullptr ? carried : insert_undefined(end_));
  }
  Node* const loop = graph_.create(prim::Loop, operands, body.signature.inputs.size());
  loop->set_location(forward.location());
  loop->insert_before(end_);
  Block* const block = loop->add_block();
  Node* const end = block->return_node();
  Value* const number = block->add_param(c10::IntType::get());
  Values of_return(params, nullptr);
  Values sums;
  for (const size_t input : body.signature.inputs) {
    sums.push_back(block->add_param(c10::TensorType::get()));
    if (input < params) {
      of_return[input] = sums.back();
    }
  }
  Value* const iteration = insert_node(aten::sub, {last, number}, end, c10::IntType::get());
  const Values parts = instantiate_backward(body, of_return, iteration, end);
  block->add_return(always);
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t input = body.signature.inputs[i];
    block->add_return(input < params ? parts[i]
                                     : insert_sum_of_gradients(*body.operands[input - params], sums[i], parts[i], end));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t input = body.signature.inputs[i];
    // Only now is it known what the iterations do with the gradient.
    if (input < params && gradients[input - 1].value == nullptr) {
      loop->set_input(i + 2, initial_gradient(*sums[i], each.results[input - 1], sources, loop));
    }
    Value* operand = input < params ? forward.input(input + 1) : body.operands[input - params];
    if (is_reached(operand)) {
      sums_.add(operand, {loop->output(i), {loop->output(i)}});
    }
  }
}

// Runs the backward of the branch that was taken. An operand that it does not use has no gradient.
void JointGraphBuilder::differentiate_branches(const Differentiated& each, const Gradients& gradients) {
  Values operands;
  for (const BlockGradient& block : each.blocks) {
    for (const size_t input : block.signature.inputs) {
      Value* operand = block.operands[input];
      if (std::ranges::find(operands, operand) == operands.end()) {
        operands.push_back(operand);
      }
    }
  }
  Values of_return;
  std::ranges::transform(gradients, std::back_inserter(of_return), [this](const Gradient& gradient) {
    return gradient.value != nullptr ? gradient.value : insert_undefined(end_);
  });
  Node* const branches = graph_.create(prim::If, {each.node->input(0)}, operands.size());
  branches->set_location(each.node->location());
  branches->insert_before(end_);
  for (const BlockGradient& block : each.blocks) {
    Block* const branch = branches->add_block();
    Node* const end = branch->return_node();
    const Values parts =
        block.backward == nullptr ? Values() : instantiate_backward(block, of_return, graph_.insert_constant(0, end), end);
    for (const Value* operand : operands) {
      const std::vector<size_t>& inputs = block.signature.inputs;
      const auto found = std::ranges::find_if(inputs, [&](size_t input) { return block.operands[input] == operand; });
      branch->add_return(found == inputs.end() ? insert_undefined(end) : parts[static_cast<size_t>(found - inputs.begin())]);
    }
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    sums_.add(operands[i], {branches->output(i), {branches->output(i)}});
  }
}

}  // namespace sconce
