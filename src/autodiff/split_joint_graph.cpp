#include "autodiff/split_joint_graph.h"

#include "analysis/effects.h"
#include "analysis/nested_uses.h"
#include "autodiff/dependence.h"
#include "autodiff/differentiable_nodes.h"
#include "base/assert.h"
#include "base/flat_map.h"
#include "ir/constant_operands.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/required/specialize_autograd_zero.h"

#include <algorithm>
#include <functional>
#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

using Nodes = std::unordered_set<const Node*>;
using Values = std::vector<Value*>;

class Splitting {
 public:
  explicit Splitting(JointGraph joint) : joint_(std::move(joint)), graph_(*joint_.graph) {
    joint_.refresh();
    const c10::ArrayRef<Value*> outputs = graph_.outputs();
    outputs_.assign(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(joint_.forward_outputs));
    gradients_ =
        Values(outputs.begin() + static_cast<std::ptrdiff_t>(joint_.forward_outputs),
               outputs.begin() + static_cast<std::ptrdiff_t>(joint_.forward_outputs + joint_.differentiable_inputs.size()));
    conditions_ = Values(outputs.end() - static_cast<std::ptrdiff_t>(joint_.conditional_outputs.size()), outputs.end());
  }

  DifferentiableGraphs run() {
    find_dependent();
    find_forward();
    for (Value* gradient : gradients_) {
      need(gradient);
    }
    order_captures();
    find_capture_dependences();
    build_backward();
    strip_forward();
    return std::move(graphs_);
  }

 private:
  bool is_gradient_input(const Value& value) const {
    return value.node() == graph_.body().param_node() && value.offset() >= joint_.forward_inputs;
  }

  void find_dependent() {
    for (const Node* node : graph_.body().nodes()) {
      bool depends = false;
      for_each_operand(*node, [&](const Value* operand) {
        depends = depends || is_gradient_input(*operand) || dependent_.contains(operand->node());
      });
      if (depends) {
        dependent_.insert(node);
      }
    }
  }

  void find_forward() {
    for (const Values* values : {&outputs_, &conditions_}) {
      for (const Value* value : *values) {
        compute_in_forward(*value);
      }
    }
    for (const Node* node : graph_.body().nodes()) {
      if (!dependent_.contains(node) && has_effects(*node)) {
        compute_in_forward(*node);
      }
    }
  }

  void compute_in_forward(const Value& value) { compute_in_forward(*value.node()); }
  void compute_in_forward(const Node& node) {
    if (&node == graph_.body().param_node() || !forward_.insert(&node).second) {
      return;
    }
    for_each_operand(node, [this](const Value* operand) { compute_in_forward(*operand); });
  }

  // Backward needs the value: finds out from where it has it.
  void need(Value* value) {
    Node& node = *value->node();
    if (value->constant() != nullptr || is_gradient_input(*value) || backward_.contains(&node)) {
      return;
    }
    if (!dependent_.contains(&node) && !is_computed_again(*value)) {
      if (&node != graph_.body().param_node()) {
        compute_in_forward(node);
      }
      captured_.insert(value);
      return;
    }
    backward_.insert(&node);
    for_each_operand(node, [this](Value* operand) { need(operand); });
  }

  bool is_computed_again(const Value& value) const {
    const Node& node = *value.node();
    if (&node == graph_.body().param_node() || has_effects(node) || is_number_like(value)) {
      return false;
    }
    return is_repeatable(node) || !forward_.contains(&node);
  }

  // Captured values in the order of inputs, outputs and the program.
  void order_captures() {
    for (size_t i = joint_.params; i < joint_.forward_inputs; ++i) {
      if (captured_.erase(graph_.inputs()[i]) != 0) {
        graphs_.captured_inputs.push_back(static_cast<int64_t>(i));
        captures_.push_back(graph_.inputs()[i]);
      }
    }
    for (size_t i = 0; i < outputs_.size() && !joint_.is_block; ++i) {
      if (captured_.erase(outputs_[i]) != 0) {
        graphs_.captured_outputs.push_back(static_cast<int64_t>(i));
        captures_.push_back(outputs_[i]);
      }
    }
    std::copy_if(graph_.inputs().begin(), graph_.inputs().begin() + static_cast<std::ptrdiff_t>(joint_.params),
                 std::back_inserter(temporaries_), [this](Value* param) { return captured_.contains(param); });
    for (const Node* node : graph_.body().nodes()) {
      std::copy_if(node->outputs().begin(), node->outputs().end(), std::back_inserter(temporaries_),
                   [this](Value* output) { return captured_.contains(output); });
    }
    captures_.insert(captures_.end(), temporaries_.begin(), temporaries_.end());
  }

  using Numbers = Dependence;

  // How a node of backward stands between the gradients of outputs and of inputs.
  struct Paths {
    Numbers outputs;  // whose gradients it is computed from
    Numbers inputs;   // whose gradients are computed from it
    Numbers pairs;    // a row per output: the inputs; of a node that is computed again, of those that use it
  };

  // Finds the gradients that meet each captured input and output: in a node that uses it, or that uses a value which
  // backward computes again from it.
  void find_capture_dependences() {
    std::vector<const Node*> nodes;
    FlatMap<const Node*, Paths> paths;
    for (const Node* node : graph_.body().nodes()) {
      if (backward_.contains(node)) {
        nodes.push_back(node);
        paths.emplace(node, paths_from_operands(*node, paths));
      }
    }
    const size_t outputs = joint_.differentiable_outputs.size();
    const size_t inputs = gradients_.size();
    FlatMap<const Value*, Paths> of_value;
    const auto paths_of = [&](const Value* value) -> Paths& {
      Paths& found = of_value[value];
      found.inputs.resize(inputs);
      found.pairs.resize(outputs * inputs);
      return found;
    };
    for (size_t i = 0; i < inputs; ++i) {
      paths_of(gradients_[i]).inputs[i] = true;
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      Paths all{paths.at(*node).outputs, Numbers(inputs), Numbers(outputs * inputs)};
      for (const Value* output : (*node)->outputs()) {
        merge(all.inputs, paths_of(output).inputs);
        if (!dependent_.contains(*node)) {
          merge(all.pairs, paths_of(output).pairs);
        }
      }
      for (size_t output = 0; output < outputs; ++output) {
        for (size_t input = 0; input < inputs; ++input) {
          all.pairs[output * inputs + input] =
              all.pairs[output * inputs + input] || (all.outputs[output] && all.inputs[input]);
        }
      }
      for_each_operand(**node, [&](const Value* operand) {
        merge(paths_of(operand).inputs, all.inputs);
        merge(paths_of(operand).pairs, all.pairs);
      });
    }
    for (size_t i = 0; i < graphs_.captured_inputs.size() + graphs_.captured_outputs.size(); ++i) {
      const Numbers& pairs = paths_of(captures_[i]).pairs;
      graphs_.capture_paths.insert(graphs_.capture_paths.end(), pairs.begin(), pairs.end());
    }
  }

  Paths paths_from_operands(const Node& node, const FlatMap<const Node*, Paths>& paths) const {
    const size_t outputs = joint_.differentiable_outputs.size();
    Paths found{Numbers(outputs), {}, {}};
    for_each_operand(node, [&](const Value* operand) {
      const size_t number = operand->offset() - joint_.forward_inputs;
      if (is_gradient_input(*operand) && number < outputs) {
        found.outputs[number] = true;
      } else if (const auto before = paths.find(operand->node()); before != paths.end()) {
        merge(found.outputs, before->second.outputs);
      }
    });
    return found;
  }

  void build_backward() {
    auto backward = std::make_shared<Graph>();
    ValueMap copies;
    const auto enter = [&](const Value& value) {
      Value* input = backward->add_input(value.name(), value.type());
      if (value.facts() != nullptr) {
        input->set_facts(*value.facts());
      }
      copies[&value] = input;
      return input;
    };
    for (size_t i = joint_.forward_inputs; i < joint_.forward_inputs + joint_.differentiable_outputs.size(); ++i) {
      Value* gradient = enter(*graph_.inputs()[i]);
      if (is_tensor(*gradient)) {
        set_defined(*gradient, true);
      }
    }
    std::vector<bool> is_captured;
    for (const JointGraph::Inner& inner : joint_.inner) {
      const auto found = std::find(temporaries_.begin(), temporaries_.end(), inner.value);
      const bool is_new = found != temporaries_.end() && placed_.insert(inner.value).second;
      is_captured.push_back(is_new);
      if (is_new) {
        graphs_.differentiable_temporaries.push_back(found - temporaries_.begin());
      }
      enter(*inner.gradient);
    }
    for (const Value* capture : captures_) {
      enter(*capture);
    }
    for (const Node* node : graph_.body().nodes()) {
      if (backward_.contains(node)) {
        for_each_operand(*node, [&](Value* operand) { enter_constant(*backward, *operand, copies); });
        backward->copy_node(*node, backward->body().return_node(), copies);
      }
    }
    for (Value* gradient : gradients_) {
      enter_constant(*backward, *gradient, copies);
      backward->add_output(copies.at(gradient));
    }
    const size_t first_inner = joint_.differentiable_outputs.size();
    graphs_.backward = without_inputs(*backward, first_inner, std::vector<bool>(is_captured.size()));
    graphs_.recorded_backward = without_inputs(*backward, first_inner, is_captured);
  }

  static void enter_constant(Graph& graph, const Value& value, ValueMap& copies) {
    if (value.constant() != nullptr && !copies.contains(&value)) {
      graph.copy_node(*value.node(), graph.body().return_node(), copies);
    }
  }

  static void set_defined(Value& value, bool is_defined) {
    TensorFacts facts = value.facts() != nullptr ? *value.facts() : TensorFacts{};
    facts.defined = is_defined;
    value.set_facts(std::move(facts));
  }

  // States that the tensor, or every tensor in the list, is undefined.
  static void set_undefined(Value& value) {
    if (is_tensor(value)) {
      set_defined(value, false);
      return;
    }
    for (const Use& use : value.uses()) {
      set_undefined(*use.user->output());
    }
  }

  // Returns a copy in which the inputs from `first` on that are not kept are undefined tensors.
  static std::shared_ptr<Graph> without_inputs(const Graph& graph, size_t first, const std::vector<bool>& is_kept) {
    std::shared_ptr<Graph> copy = graph.clone();
    for (size_t i = 0; i < is_kept.size(); ++i) {
      if (!is_kept[i]) {
        set_undefined(*copy->inputs()[first + i]);
      }
    }
    specialize_autograd_zero(*copy);
    eliminate_dead_nodes(*copy);
    for (size_t i = is_kept.size(); i-- > 0;) {
      if (!is_kept[i]) {
        SCONCE_ASSERT(!copy->inputs()[first + i]->has_uses(),
                      "backward uses the gradient of a value that it does not capture");
        copy->body().remove_param(first + i);
      }
    }
    return copy;
  }

  // Leaves what forward computes: the outputs and the temporaries.
  void strip_forward() {
    Block& body = graph_.body();
    while (body.returns().size() > outputs_.size()) {
      body.remove_return(body.returns().size() - 1);
    }
    for (const Values* values : {&temporaries_, &conditions_}) {
      for (Value* value : *values) {
        body.add_return(value);
      }
    }
    for (Node* node = body.last(); node != nullptr;) {
      Node* previous = node->previous();
      if (!forward_.contains(node) && node->opcode() != Opcode::kConstant) {
        node->erase();
      }
      node = previous;
    }
    eliminate_dead_nodes(graph_);
    while (graph_.inputs().size() > joint_.forward_inputs) {
      body.remove_param(graph_.inputs().size() - 1);
    }
    graphs_.forward = joint_.graph;
  }

  JointGraph joint_;
  Graph& graph_;
  Values outputs_;
  Values gradients_;
  Values conditions_;
  Nodes dependent_;  // on a gradient
  Nodes forward_;
  Nodes backward_;
  std::unordered_set<Value*> captured_;
  std::unordered_set<const Value*> placed_;
  Values captures_;
  Values temporaries_;
  DifferentiableGraphs graphs_;
};

}  // namespace

DifferentiableGraphs split_joint_graph(JointGraph joint) { return Splitting(std::move(joint)).run(); }

}  // namespace sconce
