#include "autodiff/joint/joint_graph_builder.h"

#include "analysis/nested_uses.h"
#include "autodiff/joint/build_nodes.h"
#include "autodiff/rules/gradient_rule.h"
#include "autodiff/select/roles.h"
#include "base/assert.h"
#include "ir/constant_operands.h"
#include "passes/insert_node.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

// Gives the uses and the facts of a value to the one that replaces it.
void stand_for(Value& replacement, Value& replaced) {
  if (const TensorFacts* facts = replaced.facts()) {
    replacement.set_facts(*facts);
  }
  replaced.replace_all_uses_with(&replacement);
}

}  // namespace

JointGraphBuilder::JointGraphBuilder(JointGraph joint)
    : graph_(*joint.graph), end_(graph_.body().return_node()), joint_(std::move(joint)), sums_(end_) {}

JointGraph JointGraphBuilder::run(const std::vector<bool>& is_differentiable) {
  joint_.forward_inputs = graph_.inputs().size();
  joint_.forward_outputs = graph_.outputs().size();
  for (size_t i = 0; i < joint_.forward_inputs; ++i) {
    if (is_differentiable[i]) {
      joint_.signature.inputs.push_back(i);
    }
  }
  for (size_t i = 0; i < joint_.signature.inputs.size(); ++i) {
    Dependence& dependence = dependences_[input(i)];
    dependence.resize(joint_.signature.inputs.size());
    dependence[i] = true;
  }
  for (Node* node : graph_.body().nodes()) {
    enter(*node);
  }
  begin_with_outputs();
  add_gradients_of_intermediates();
  records_ = graph_.add_input("records", c10::BoolType::get());
  for (auto each = tape_.rbegin(); each != tape_.rend(); ++each) {
    Node* const before = end_->previous();
    differentiate(*each);
    for (Node* node = node_after(before, graph_.body()); node != nullptr; node = node->next()) {
      set_missing_location(*node, each->node->location());
    }
  }
  return_gradients();
  for (auto node = replaced_.rbegin(); node != replaced_.rend(); ++node) {
    (*node)->erase();
  }
  return std::move(joint_);
}

// ---- forward: which values depend on differentiable inputs

bool JointGraphBuilder::reaches(const Node& node) const {
  bool reaches = false;
  for_each_operand(node, [&](const Value* operand) { reaches = reaches || is_reached(operand); });
  return reaches;
}

void JointGraphBuilder::enter(Node& node) {
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
  // The nodes of a slice have roles, so a gradient flows through one that is not auxiliary.
  if (!is_auxiliary(node)) {
    enter_operator(node);
  }
}

void JointGraphBuilder::enter_operator(Node& node) {
  const bool joins_filled = (node.opcode() == Opcode::kStack || node.opcode() == Opcode::kCat) && !joins_list(node);
  Differentiated each{Kind::kRule, &node, node.outputs().vec(), nullptr, {}, {}};
  if (joins_filled) {
    each.kind = Kind::kFilledJoin;
  } else if (joins_list(node)) {
    each.kind = Kind::kJoin;
  } else if (node.opcode() == Opcode::kListUnpack) {
    each.kind = Kind::kUnpack;
  } else if (!cuts_list(node)) {
    const GradientRule rule = gradient_of(node);
    each.gradient = rule.gradient;
    each.is_recorded = rule.is_recorded;
    if (each.gradient == nullptr) {
      return;  // a cut whose parts are taken outside, where it runs again
    }
    if (each.gradient->backward == nullptr) {
      enter_composed(node, *each.gradient);
      return;
    }
    if (each.gradient->forward != nullptr) {
      expand(each);
    }
  }
  note_dependence(node, each.results);
  if (!cuts_list(node)) {  // the node that unpacks the list does it all
    tape_.push_back(std::move(each));
  }
}

// Replaces the operator by those that it is composed of.
void JointGraphBuilder::enter_composed(Node& node, const OpGradient& gradient) {
  Node* const before = node.previous();
  const c10::ArrayRef<Value*> results = instantiate(*gradient.forward, node.inputs().vec(), node, &node)->node()->inputs();
  for (size_t i = 0; i < results.size(); ++i) {
    stand_for(*results[i], *node.output(i));
  }
  replaced_.push_back(&node);
  for (Node* each = node_after(before, *node.owning_block()); each != &node; each = each->next()) {
    if (reaches(*each) && each->schema() != nullptr && gradient_of(each->op()) != nullptr) {
      enter_operator(*each);
    }
  }
}

// Replaces the operator by its forward text, which returns what backward saves besides.
void JointGraphBuilder::expand(Differentiated& each) {
  Node& node = *each.node;
  Value* tuple = instantiate(*each.gradient->forward, node.inputs().vec(), node, &node);
  const c10::ArrayRef<Value*> values = insert_tuple_unpack(tuple, &node);
  for (size_t i = 0; i < each.results.size(); ++i) {
    stand_for(*values[i], *each.results[i]);
    each.results[i] = values[i];
  }
  each.saved.assign(values.begin() + static_cast<std::ptrdiff_t>(each.results.size()), values.end());
  replaced_.push_back(&node);
}

// Copies a text's nodes to before `position`, with the location of the node that they belong to. Returns its result.
Value* JointGraphBuilder::instantiate(const Graph& text, const Values& arguments, const Node& node, Node* position) {
  ValueMap values;
  SCONCE_ASSERT(text.inputs().size() == arguments.size(), "the text of ", node.kind().toQualString(), " takes ",
                text.inputs().size(), " values");
  for (size_t i = 0; i < arguments.size(); ++i) {
    values[text.inputs()[i]] = arguments[i];
  }
  Node* const before = position->previous();
  const Values results = graph_.copy_nodes(text.body(), position, values);
  for (Node* copy = node_after(before, *position->owning_block()); copy != nullptr && copy != position;
       copy = copy->next()) {
    locate(*copy, node.location());
  }
  return results.at(0);
}

// ---- backward

// Adds an input for a gradient like the value.
Value* JointGraphBuilder::add_gradient_input(const Value& value) {
  Value* gradient = graph_.add_input("grad", value.type());
  set_facts_of_gradient(*gradient, value);
  return gradient;
}

void JointGraphBuilder::begin_with_outputs() {
  for (size_t i = 0; i < joint_.forward_outputs; ++i) {
    Value* output = graph_.outputs()[i];
    if (!is_reached(output) || is_number_like(*output)) {
      continue;
    }
    joint_.signature.outputs.push_back({i, {}, {}});
    if (is_tensor(*output)) {
      Value* gradient = add_gradient_input(*output);
      sums_.add(output, {gradient, {gradient}});
    } else {
      list_gradients_[output] = {add_gradient_input(*output), {}};
    }
  }
}

void JointGraphBuilder::add_gradients_of_intermediates() {
  if (joint_.is_block) {
    for (size_t i = 0; i < joint_.signature.inputs.size(); ++i) {
      if (joint_.signature.inputs[i] < joint_.params) {
        add_gradient_of_intermediate(input(i));
      }
    }
  }
  const auto outputs = graph_.outputs().slice(0, joint_.is_block ? 0 : joint_.forward_outputs);
  for (const Differentiated& each : tape_) {
    for (Value* result : each.results) {
      if (is_tensor(*result) && is_reached(result) && std::find(outputs.begin(), outputs.end(), result) == outputs.end()) {
        add_gradient_of_intermediate(result);
      }
    }
    for (const BlockGradient& block : each.blocks) {
      for (Value* list : block.intermediates) {
        add_gradient_of_intermediate(list);
      }
    }
  }
}

void JointGraphBuilder::add_gradient_of_intermediate(Value* value) {
  joint_.intermediates.push_back({value, add_gradient_input(*value)});
  gradients_of_intermediates_[value] = joint_.intermediates.back().gradient;
}

// Completes the gradient of a value: no operator that comes later in the walk adds to it.
Gradient JointGraphBuilder::complete_gradient(Value* value) {
  Gradient gradient = sums_.at(value);
  const auto second = gradients_of_intermediates_.find(value);
  if (gradient.value != nullptr && second != gradients_of_intermediates_.end()) {
    gradient.value = insert_sum_of_gradients(*value, gradient.value, second->second, end_);
    merge_sources(gradient.sources, {second->second});
  }
  return gradient;
}

void JointGraphBuilder::differentiate(const Differentiated& each) {
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
  if (each.kind == Kind::kFilledJoin) {
    differentiate_filled_join(each, gradients[0]);
    return;
  }
  Node* const before = end_->previous();
  const Values filled = fill(each, gradients);
  switch (each.kind) {
    case Kind::kJoin: add_parts(each, gradients, before, parts_of_join(each, filled[0])); break;
    case Kind::kUnpack: add_parts(each, gradients, before, {part_of_cut(each, filled)}); break;
    default: add_parts(each, gradients, before, parts_by_text(each, gradients, filled));
  }
}

void JointGraphBuilder::return_gradients() {
  GradientSignature& signature = joint_.signature;
  std::vector<size_t> inputs;
  std::vector<size_t> kept;  // numbers of the differentiable inputs that have a gradient
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const bool is_param = signature.inputs[i] < joint_.params;
    Gradient gradient = is_param ? complete_gradient(input(i)) : sums_.at(input(i));
    if (is_param && gradient.value == nullptr && !signature.outputs.empty()) {
      const auto second = gradients_of_intermediates_.find(input(i));
      gradient.value = second != gradients_of_intermediates_.end() ? second->second : insert_undefined(end_);
    }
    if (gradient.value != nullptr) {
      kept.push_back(i);
      inputs.push_back(signature.inputs[i]);
      graph_.add_output(gradient.value);
    }
  }
  const auto row_of = [&](const Dependence& all) {
    Dependence row;
    std::transform(kept.begin(), kept.end(), std::back_inserter(row), [&](size_t input) { return all[input]; });
    return row;
  };
  for (const JointGraph::Intermediate& intermediate : joint_.intermediates) {
    graph_.add_output(intermediate.value);
  }
  for (GradientSignature::Output& output : signature.outputs) {
    const Value* value = graph_.outputs()[output.position];
    output.reaches = row_of(dependences_.at(value));
    if (const auto condition = conditions_.find(value); condition != conditions_.end()) {
      output.otherwise = row_of(condition->second.otherwise);
      graph_.add_output(condition->second.holds);
    }
  }
  signature.inputs = std::move(inputs);
}

}  // namespace sconce
