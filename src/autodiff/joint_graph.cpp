#include "autodiff/joint_graph.h"

#include "autodiff/build_nodes.h"
#include "autodiff/differentiable_nodes.h"
#include "autodiff/reduce_gradient.h"
#include "base/assert.h"
#include "base/flat_map.h"
#include "ir/constant_operands.h"
#include "ir/schema_match.h"
#include "load/compile_op_row.h"

#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace sconce {
namespace {

using Values = std::vector<Value*>;
using Dependence = std::vector<bool>;  // by differentiable input

// A node of the forward graph that gradients flow through.
struct Differentiated {
  Node* node;
  const OpGradient* gradient;  // null for joins and cuts of lists
  Values results;
  Values saved;
};

class Differentiation {
 public:
  explicit Differentiation(std::shared_ptr<Graph> forward)
      : graph_(*forward), end_(graph_.body().return_node()), joint_{std::move(forward), 0, 0, {}, {}, {}, {}} {}

  JointGraph run() {
    joint_.forward_inputs = graph_.inputs().size();
    joint_.forward_outputs = graph_.outputs().size();
    const Values forward_inputs = graph_.inputs().vec();
    for (size_t i = 0; i < forward_inputs.size(); ++i) {
      if (may_require_grad(*forward_inputs[i])) {
        joint_.differentiable_inputs.push_back(static_cast<int64_t>(i));
      }
    }
    for (size_t i = 0; i < joint_.differentiable_inputs.size(); ++i) {
      Dependence& dependence = dependences_[input(i)];
      dependence.resize(joint_.differentiable_inputs.size());
      dependence[i] = true;
    }
    for (Node* node : graph_.body().nodes()) {
      enter(*node);
    }
    begin_with_outputs();
    add_inner_gradients();
    for (auto each = tape_.rbegin(); each != tape_.rend(); ++each) {
      differentiate(*each);
    }
    return_gradients();
    for (const Differentiated& each : tape_) {
      if (!each.saved.empty() || (each.gradient != nullptr && each.gradient->forward != nullptr)) {
        each.node->erase();
      }
    }
    return std::move(joint_);
  }

 private:
  Value* input(size_t differentiable) const {
    return graph_.inputs()[static_cast<size_t>(joint_.differentiable_inputs[differentiable])];
  }

  bool is_reached(const Value* value) const { return dependences_.contains(value); }

  // ---- forward: which values depend on differentiable inputs

  void enter(Node& node) {
    if (node.opcode() == Opcode::kListConstruct) {
      note_dependence(node, node.outputs().vec());
      return;
    }
    if (role_of(node) != Role::kDifferentiated || !reaches(node)) {
      return;
    }
    Differentiated each{&node, nullptr, node.outputs().vec(), {}};
    if (!joins_list(node) && !cuts_list(node) && node.opcode() != Opcode::kListUnpack) {
      each.gradient = gradient_of(node.op());
      if (each.gradient->forward != nullptr) {
        expand(each);
      }
    }
    note_dependence(node, each.results);
    tape_.push_back(std::move(each));
  }

  bool reaches(const Node& node) const {
    return std::any_of(node.inputs().begin(), node.inputs().end(), [this](const Value* value) { return is_reached(value); });
  }

  void note_dependence(const Node& node, const Values& results) {
    Dependence all(joint_.differentiable_inputs.size());
    bool any = false;
    for (const Value* operand : node.inputs()) {
      if (is_reached(operand)) {
        any = true;
        const Dependence& part = dependences_.at(operand);
        std::transform(all.begin(), all.end(), part.begin(), all.begin(), std::logical_or<>());
      }
    }
    for (Value* result : results) {
      if (any && (may_require_grad(*result) || !is_tensor(*result))) {
        dependences_[result] = all;
      }
    }
  }

  // Replaces the operator by its forward text, which returns what backward saves besides. The node stays until the end, for
  // its facts.
  void expand(Differentiated& each) {
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
  Value* instantiate(const Graph& text, const Values& arguments, const Node& node, Node* position) {
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

  static void locate(Node& node, const SourceLocationPtr& location) {
    node.set_location(location);
    for (Block* block : node.blocks()) {
      for (Node* nested : block->nodes()) {
        locate(*nested, location);
      }
    }
  }

  // ---- backward

  // Adds an input for a gradient like the value.
  Value* add_gradient_input(const Value& value) {
    Value* gradient = graph_.add_input("grad", c10::TensorType::get());
    if (value.facts() != nullptr) {
      TensorFacts facts = *value.facts();
      facts.strides.reset();
      facts.contiguous = false;
      facts.requires_grad.reset();
      gradient->set_facts(std::move(facts));
    }
    return gradient;
  }

  void begin_with_outputs() {
    for (size_t i = 0; i < joint_.forward_outputs; ++i) {
      Value* output = graph_.outputs()[i];
      if (!is_reached(output) || !is_tensor(*output)) {
        continue;
      }
      joint_.differentiable_outputs.push_back(static_cast<int64_t>(i));
      const Dependence& dependence = dependences_.at(output);
      joint_.dependences.insert(joint_.dependences.end(), dependence.begin(), dependence.end());
      add(output, add_gradient_input(*output));
    }
  }

  void add_inner_gradients() {
    for (const Differentiated& each : tape_) {
      for (Value* result : each.results) {
        const auto outputs = graph_.outputs();
        if (is_tensor(*result) && is_reached(result) && std::find(outputs.begin(), outputs.end(), result) == outputs.end()) {
          joint_.inner.push_back({result, add_gradient_input(*result)});
          inner_[result] = joint_.inner.back().gradient;
        }
      }
    }
  }

  void add(Value* value, Value* gradient) {
    Value*& sum = gradients_[value];
    if (sum == nullptr) {
      sum = gradient;
      return;
    }
    Value* one = graph_.insert_constant(1, end_);
    sum = insert_node(aten::add, {sum, gradient, one}, end_);
    sum->node()->set_location(value->node()->location());
  }

  Value* gradient_at(const Value* value) const {
    const auto found = gradients_.find(value);
    return found == gradients_.end() ? nullptr : found->second;
  }

  // Completes the gradient of a result: no operator that comes later in the walk adds to it.
  Value* complete_gradient(Value* result) {
    Value* gradient = gradient_at(result);
    const auto inner = inner_.find(result);
    if (gradient != nullptr && inner != inner_.end()) {
      const TensorFacts facts = gradient->facts() != nullptr ? *gradient->facts() : TensorFacts{};
      gradient = insert_node(prim::AutogradAdd, {gradient, inner->second}, end_);
      gradient->set_facts(facts);
    }
    return gradient;
  }

  void differentiate(const Differentiated& each) {
    Values gradients;
    for (Value* result : each.results) {
      gradients.push_back(complete_gradient(result));
    }
    Value* const any = *std::find_if(gradients.begin(), gradients.end() - 1, [](Value* value) { return value != nullptr; });
    if (any == nullptr) {
      return;
    }
    if (cuts_list(*each.node)) {
      return;  // the node that unpacks the list does it all
    }
    if (each.node->opcode() == Opcode::kListUnpack) {
      differentiate_cut(each, fill(each, std::move(gradients), any));
    } else if (each.gradient == nullptr) {
      differentiate_join(each, any);
    } else {
      differentiate_by_text(each, fill(each, std::move(gradients), any));
    }
  }

  // Replaces missing gradients by zeros. A result that no gradient flows to gets any, which the text does not read.
  Values fill(const Differentiated& each, Values gradients, Value* any) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i] != nullptr) {
        continue;
      }
      gradients[i] = any;
      if (may_require_grad(*each.results[i])) {
        static const c10::Symbol kNewZeros = c10::Symbol::fromQualString("aten::new_zeros");
        Value* none = graph_.insert_constant(c10::IValue(), end_);
        gradients[i] = insert_node(kNewZeros, {any, insert_sizes(each.results[i], end_), none, none, none, none}, end_);
      }
    }
    return gradients;
  }

  void differentiate_by_text(const Differentiated& each, const Values& gradients) {
    const Node& node = *each.node;
    c10::List<bool> needs;
    for (const Value* operand : node.inputs()) {
      needs.push_back(is_reached(operand));
    }
    Values arguments = node.inputs().vec();
    arguments.insert(arguments.end(), each.results.begin(), each.results.end());
    arguments.insert(arguments.end(), each.saved.begin(), each.saved.end());
    arguments.insert(arguments.end(), gradients.begin(), gradients.end());
    arguments.push_back(graph_.insert_constant(needs, end_));
    Value* tuple = instantiate(*each.gradient->backward, arguments, node, end_);
    const c10::ArrayRef<Value*> entries = insert_tuple_unpack(tuple, end_);
    for (size_t i = 0; i < node.inputs().size() && i < entries.size(); ++i) {
      if (is_tensor(*node.input(i)) && is_reached(node.input(i)) && !is_none(*entries[i])) {
        add(node.input(i), reduce_gradient(as_tensor(entries[i]), node, i, end_));
      }
    }
  }

  // An entry that a branch may leave out is there if its gradient is needed.
  Value* as_tensor(Value* entry) {
    return is_tensor(*entry) ? entry : insert_node(c10::Symbol::fromQualString("aten::_unwrap_optional"), {entry}, end_);
  }

  // A cat's gradient is cut into parts of the elements' sizes; a stack's is unbound.
  void differentiate_join(const Differentiated& each, Value* gradient) {
    const Node& node = *each.node;
    const c10::ArrayRef<Value*> elements = node.input(0)->node()->inputs();
    Value* dim = node.input(1);
    Value* parts = nullptr;
    if (node.opcode() == Opcode::kStack) {
      parts = insert_node(aten::unbind, {gradient, dim}, end_, c10::ListType::ofTensors());
    } else {
      Values sizes;
      for (Value* element : elements) {
        sizes.push_back(insert_size(element, dim, end_));
      }
      static const c10::Symbol kSplit = c10::Symbol::fromQualString("aten::split_with_sizes");
      parts = insert_node(kSplit, {gradient, insert_int_list(sizes, end_), dim}, end_, c10::ListType::ofTensors());
    }
    parts->node()->set_location(node.location());
    const c10::ArrayRef<Value*> gradients = insert_list_unpack(parts, elements.size(), end_);
    for (size_t i = 0; i < elements.size(); ++i) {
      if (is_reached(elements[i])) {
        add(elements[i], cast_gradient(gradients[i], *each.results[0], elements[i], end_));
      }
    }
  }

  // The gradient of a tensor that was cut: the gradients of its parts, joined.
  void differentiate_cut(const Differentiated& each, const Values& gradients) {
    const Node& cut = *each.node->input(0)->node();
    Value* dim = cut.named_input("dim");
    Value* joined = insert_node(cut.opcode() == Opcode::kUnbind ? aten::stack : aten::cat,
                                {insert_tensor_list(gradients, end_), dim}, end_);
    joined->node()->set_location(cut.location());
    add(cut.input(0), joined);
  }

  void return_gradients() {
    std::vector<int64_t> inputs;
    std::vector<bool> has_gradient;
    for (size_t i = 0; i < joint_.differentiable_inputs.size(); ++i) {
      Value* gradient = gradient_at(input(i));
      has_gradient.push_back(gradient != nullptr);
      if (gradient != nullptr) {
        inputs.push_back(joint_.differentiable_inputs[i]);
        graph_.add_output(gradient);
      }
    }
    std::vector<int64_t> dependences;
    for (size_t i = 0; i < joint_.dependences.size(); ++i) {
      if (has_gradient[i % has_gradient.size()]) {
        dependences.push_back(joint_.dependences[i]);
      }
    }
    joint_.differentiable_inputs = std::move(inputs);
    joint_.dependences = std::move(dependences);
    for (const JointGraph::Inner& inner : joint_.inner) {
      graph_.add_output(inner.value);
    }
  }

  Graph& graph_;
  Node* const end_;
  JointGraph joint_;
  std::vector<Differentiated> tape_;
  FlatMap<const Value*, Dependence> dependences_;  // of the values that depend on a differentiable input
  FlatMap<const Value*, Value*> gradients_;
  FlatMap<const Value*, Value*> inner_;
};

}  // namespace

void JointGraph::refresh() {
  const size_t first = forward_outputs + differentiable_inputs.size();
  for (size_t i = 0; i < inner.size(); ++i) {
    inner[i].value = graph->outputs()[first + i];
  }
}

JointGraph differentiate_forward(std::shared_ptr<Graph> forward) { return Differentiation(std::move(forward)).run(); }

}  // namespace sconce
