#include "autodiff/joint_graph.h"

#include "analysis/nested_uses.h"
#include "autodiff/build_nodes.h"
#include "autodiff/differentiable_nodes.h"
#include "autodiff/differentiation.h"
#include "autodiff/reduce_gradient.h"
#include "base/assert.h"
#include "ir/constant_operands.h"
#include "passes/insert_node.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/simplify/propagate_facts.h"
#include "passes/simplify/simplify.h"

#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace sconce {

Differentiation::Differentiation(JointGraph joint)
    : graph_(*joint.graph), end_(graph_.body().return_node()), joint_(std::move(joint)), sums_(end_) {}

JointGraph Differentiation::run(const std::vector<bool>& is_differentiable) {
  joint_.forward_inputs = graph_.inputs().size();
  joint_.forward_outputs = graph_.outputs().size();
  for (size_t i = 0; i < joint_.forward_inputs; ++i) {
    if (is_differentiable[i]) {
      joint_.differentiable_inputs.push_back(static_cast<int64_t>(i));
    }
  }
  for (size_t i = 0; i < joint_.differentiable_inputs.size(); ++i) {
    Dependence& dependence = dependences_[input(i)];
    dependence.resize(joint_.differentiable_inputs.size());
    dependence[i] = true;
    if (static_cast<size_t>(joint_.differentiable_inputs[i]) >= joint_.params) {
      sums_.set_result(input(i));
    }
  }
  for (Node* node : graph_.body().nodes()) {
    enter(*node);
  }
  begin_with_outputs();
  add_inner_gradients();
  for (auto each = tape_.rbegin(); each != tape_.rend(); ++each) {
    Node* const before = end_->previous();
    differentiate(*each);
    for (Node* node = before == nullptr ? graph_.body().first() : before->next(); node != nullptr; node = node->next()) {
      set_missing_location(*node, each->node->location());
    }
  }
  return_gradients();
  for (const Differentiated& each : tape_) {
    if (each.gradient != nullptr && each.gradient->forward != nullptr) {
      each.node->erase();
    }
  }
  return std::move(joint_);
}

// ---- forward: which values depend on differentiable inputs

bool Differentiation::reaches(const Node& node) const {
  bool reaches = false;
  for_each_operand(node, [&](const Value* operand) { reaches = reaches || is_reached(operand); });
  return reaches;
}

void Differentiation::enter(Node& node) {
  if (!reaches(node)) {
    return;
  }
  if (!node.blocks().empty()) {
    enter_blocks(node);
    return;
  }
  if (node.opcode() == Opcode::kListConstruct) {
    note_dependence(node, node.outputs().vec());
    return;
  }
  if (node.opcode() == Opcode::kAppend) {
    enter_append(node);
    return;
  }
  const bool joins = node.opcode() == Opcode::kStack || node.opcode() == Opcode::kCat;
  const bool joins_filled =
      joins && node.input(0)->node()->opcode() == Opcode::kListConstruct && node.input(0)->node()->inputs().empty();
  if (!joins_filled && role_of(node) != Role::kDifferentiated) {
    return;
  }
  Differentiated each{Kind::kText, &node, node.outputs().vec(), nullptr, {}, {}};
  if (joins_filled) {
    each.kind = Kind::kFilledJoin;
  } else if (joins_list(node)) {
    each.kind = Kind::kJoin;
  } else if (node.opcode() == Opcode::kListUnpack) {
    each.kind = Kind::kUnpack;
  } else if (!cuts_list(node)) {
    each.gradient = gradient_of(node.op());
    if (each.gradient->forward != nullptr) {
      expand(each);
    }
  }
  note_dependence(node, each.results);
  if (!cuts_list(node)) {  // the node that unpacks the list does it all
    tape_.push_back(std::move(each));
  }
}

// Replaces the operator by its forward text, which returns what backward saves besides. The node stays until the end, for
// its facts.
void Differentiation::expand(Differentiated& each) {
  Node& node = *each.node;
  Value* tuple = instantiate(*each.gradient->forward, node.inputs().vec(), node, &node);
  const c10::ArrayRef<Value*> values = insert_tuple_unpack(tuple, &node);
  for (size_t i = 0; i < each.results.size(); ++i) {
    if (const TensorFacts* facts = each.results[i]->facts()) {
      values[i]->set_facts(*facts);
    }
    each.results[i]->replace_all_uses_with(values[i]);
    each.results[i] = values[i];
  }
  each.saved.assign(values.begin() + static_cast<std::ptrdiff_t>(each.results.size()), values.end());
}

// Copies a text's nodes to before `position`, with the location of the node that they belong to. Returns its result.
Value* Differentiation::instantiate(const Graph& text, const Values& arguments, const Node& node, Node* position) {
  ValueMap values;
  SCONCE_ASSERT(text.inputs().size() == arguments.size(), "the text of ", node.kind().toQualString(), " takes ",
                text.inputs().size(), " values");
  for (size_t i = 0; i < arguments.size(); ++i) {
    values[text.inputs()[i]] = arguments[i];
  }
  Node* const before = position->previous();
  const Values results = graph_.copy_nodes(text.body(), position, values);
  for (Node* copy = before == nullptr ? graph_.body().first() : before->next(); copy != nullptr && copy != position;
       copy = copy->next()) {
    locate(*copy, node.location());
  }
  return results.at(0);
}

// ---- backward

// Adds an input for a gradient like the value.
Value* Differentiation::add_gradient_input(const Value& value) {
  Value* gradient = graph_.add_input("grad", value.type());
  set_facts_of_gradient(*gradient, value);
  return gradient;
}

void Differentiation::begin_with_outputs() {
  for (size_t i = 0; i < joint_.forward_outputs; ++i) {
    Value* output = graph_.outputs()[i];
    if (!is_reached(output) || is_number_like(*output)) {
      continue;
    }
    joint_.differentiable_outputs.push_back(static_cast<int64_t>(i));
    if (is_tensor(*output)) {
      sums_.add(output, {add_gradient_input(*output)});
    } else {
      list_gradients_[output] = {add_gradient_input(*output), joint_.is_block && joint_.is_joined[i]};
    }
  }
}

void Differentiation::add_inner_gradients() {
  if (joint_.is_block) {
    for (size_t i = 0; i < joint_.differentiable_inputs.size(); ++i) {
      if (static_cast<size_t>(joint_.differentiable_inputs[i]) < joint_.params) {
        add_inner_gradient(input(i));
      }
    }
  }
  const auto outputs = graph_.outputs().slice(0, joint_.is_block ? 0 : joint_.forward_outputs);
  for (const Differentiated& each : tape_) {
    for (Value* result : each.results) {
      if (is_tensor(*result) && is_reached(result) && std::find(outputs.begin(), outputs.end(), result) == outputs.end()) {
        add_inner_gradient(result);
      }
    }
    for (const BlockGradient& block : each.blocks) {
      for (Value* stack : block.inner) {
        add_inner_gradient(stack);
      }
    }
  }
}

void Differentiation::add_inner_gradient(Value* value) {
  joint_.inner.push_back({value, add_gradient_input(*value)});
  inner_[value] = joint_.inner.back().gradient;
}

// Completes the gradient of a value: no operator that comes later in the walk adds to it.
Gradient Differentiation::complete_gradient(Value* value) {
  Gradient gradient = sums_.at(value);
  const auto inner = inner_.find(value);
  if (gradient.value != nullptr && inner != inner_.end()) {
    gradient.value = insert_sum_of_gradients(*value, gradient.value, inner->second, /*is_defined=*/true, end_);
  }
  return gradient;
}

void Differentiation::differentiate(const Differentiated& each) {
  if (each.kind == Kind::kAppend) {
    differentiate_append(each);
    return;
  }
  if (each.kind == Kind::kBlocks) {
    differentiate_blocks(each);
    return;
  }
  Gradients gradients;
  for (Value* result : each.results) {
    gradients.push_back(complete_gradient(result));
  }
  if (std::all_of(gradients.begin(), gradients.end(), [](const Gradient& one) { return one.value == nullptr; })) {
    return;
  }
  switch (each.kind) {
    case Kind::kJoin: differentiate_join(each, gradients[0]); break;
    case Kind::kFilledJoin: differentiate_filled_join(each, gradients[0]); break;
    case Kind::kUnpack: differentiate_cut(each, fill(each, std::move(gradients))); break;
    default: differentiate_by_text(each, fill(each, std::move(gradients)));
  }
}

// Replaces missing gradients by zeros. A result that no gradient flows to gets any, which the text does not read. All are
// there where one is.
Differentiation::Gradients Differentiation::fill(const Differentiated& each, Gradients gradients) {
  const auto any =
      std::find_if(gradients.begin(), gradients.end(), [](const Gradient& one) { return one.value != nullptr; });
  Gradient all = *any;
  for (const Gradient& gradient : gradients) {
    all.is_there = gradient.value != nullptr ? sums_.either(all.is_there, gradient.is_there) : all.is_there;
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].value == nullptr) {
      gradients[i].value = may_require_grad(*each.results[i]) ? insert_zeros(each.results[i], end_) : all.value;
    }
    gradients[i].is_there = all.is_there;
  }
  return gradients;
}

void Differentiation::differentiate_by_text(const Differentiated& each, const Gradients& gradients) {
  const Node& node = *each.node;
  c10::List<bool> needs;
  for (const Value* operand : node.inputs()) {
    needs.push_back(is_reached(operand));
  }
  Values arguments = node.inputs().vec();
  arguments.insert(arguments.end(), each.results.begin(), each.results.end());
  arguments.insert(arguments.end(), each.saved.begin(), each.saved.end());
  std::transform(gradients.begin(), gradients.end(), std::back_inserter(arguments),
                 [](const Gradient& gradient) { return gradient.value; });
  arguments.push_back(graph_.insert_constant(needs, end_));
  Value* tuple = instantiate(*each.gradient->backward, arguments, node, end_);
  const c10::ArrayRef<Value*> entries = insert_tuple_unpack(tuple, end_);
  for (size_t i = 0; i < node.inputs().size() && i < entries.size(); ++i) {
    if (is_tensor(*node.input(i)) && is_reached(node.input(i)) && !is_none(*entries[i])) {
      sums_.add(node.input(i), {reduce_gradient(as_tensor(entries[i]), node, i, end_), gradients[0].is_there});
    }
  }
}

// An entry that a branch may leave out is there if its gradient is needed.
Value* Differentiation::as_tensor(Value* entry) {
  return is_tensor(*entry) ? entry : insert_node(c10::Symbol::fromQualString("aten::_unwrap_optional"), {entry}, end_);
}

void Differentiation::return_gradients() {
  std::vector<int64_t> inputs;
  std::vector<bool> has_gradient;
  for (size_t i = 0; i < joint_.differentiable_inputs.size(); ++i) {
    const bool is_param = static_cast<size_t>(joint_.differentiable_inputs[i]) < joint_.params;
    Gradient gradient = is_param ? complete_gradient(input(i)) : sums_.at(input(i));
    if (is_param && gradient.value == nullptr && !joint_.differentiable_outputs.empty()) {
      gradient.value = insert_zeros(input(i), end_);
      if (const auto inner = inner_.find(input(i)); inner != inner_.end()) {
        gradient.value = insert_sum_of_gradients(*input(i), gradient.value, inner->second, /*is_defined=*/true, end_);
      }
    }
    has_gradient.push_back(gradient.value != nullptr);
    if (gradient.value != nullptr) {
      inputs.push_back(joint_.differentiable_inputs[i]);
      joint_.is_always_there.push_back(is_param || gradient.is_there == nullptr);
      graph_.add_output(gradient.value);
    }
  }
  const auto add_row = [&](std::vector<int64_t>& rows, const Dependence& row) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (has_gradient[i]) {
        rows.push_back(row[i] ? 1 : 0);
      }
    }
  };
  for (const JointGraph::Inner& inner : joint_.inner) {
    graph_.add_output(inner.value);
  }
  for (size_t i = 0; i < joint_.differentiable_outputs.size(); ++i) {
    const Value* output = graph_.outputs()[static_cast<size_t>(joint_.differentiable_outputs[i])];
    add_row(joint_.dependences, dependences_.at(output));
    if (const auto condition = conditions_.find(output); condition != conditions_.end()) {
      joint_.conditional_outputs.push_back(static_cast<int64_t>(i));
      add_row(joint_.other_dependences, condition->second.otherwise);
      graph_.add_output(condition->second.holds);
    }
  }
  joint_.differentiable_inputs = std::move(inputs);
}

// ---- the interface

namespace {

// Folds the branches of texts that facts decide. Gradient inputs have the symbols of the outputs, so that not every symbol
// is known to be other than 1.
JointGraph folded(JointGraph joint) {
  if (!joint.differentiable_inputs.empty() && !joint.differentiable_outputs.empty()) {
    propagate_facts(*joint.graph, InputAssumptions{.grad_mode = false}, KnownNumbers::kFold);
    simplify(*joint.graph);
    eliminate_dead_nodes(*joint.graph);
  }
  return joint;
}

}  // namespace

void JointGraph::refresh() {
  const size_t first = forward_outputs + differentiable_inputs.size();
  for (size_t i = 0; i < inner.size(); ++i) {
    inner[i].value = graph->outputs()[first + i];
  }
}

JointGraph differentiate_forward(std::shared_ptr<Graph> forward) {
  std::vector<bool> is_differentiable;
  for (const Value* input : forward->inputs()) {
    is_differentiable.push_back(may_require_grad(*input));
  }
  return folded(Differentiation({.graph = std::move(forward)}).run(is_differentiable));
}

JointGraph differentiate_block(std::shared_ptr<Graph> block, size_t params, const std::vector<bool>& is_differentiable,
                               std::vector<bool> is_joined) {
  JointGraph joint{.graph = std::move(block), .params = params, .is_block = true, .is_joined = std::move(is_joined)};
  return folded(Differentiation(std::move(joint)).run(is_differentiable));
}

}  // namespace sconce
