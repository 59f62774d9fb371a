#include "autodiff/split_joint_graph.h"

#include "analysis/effects.h"
#include "analysis/gradient_paths.h"
#include "analysis/nested_uses.h"
#include "autodiff/differentiable_nodes.h"
#include "base/assert.h"
#include "ir/constant_operands.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/required/specialize_backward.h"

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
    const size_t inputs = joint_.signature.inputs.size();
    outputs_ = outputs.slice(0, joint_.forward_outputs).vec();
    gradients_ = outputs.slice(joint_.forward_outputs, inputs).vec();
    conditions_ = outputs.slice(joint_.forward_outputs + inputs + joint_.intermediates.size()).vec();
    graphs_.signature = std::move(joint_.signature);
  }

  DifferentiableGraphs run() {
    connected_.insert(outputs_.begin(), outputs_.end());
    for (const JointGraph::Intermediate& intermediate : joint_.intermediates) {
      connected_.insert(intermediate.value);
    }
    find_dependent();
    find_forward();
    for (Value* gradient : gradients_) {
      need(gradient);
    }
    order_saved();
    build_backward();
    find_paths();
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
      saved_.insert(value);
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
    return is_repeatable(node) ? !connected_.contains(&value) || is_connected_again(node) : !forward_.contains(&node);
  }

  // Returns whether the values that the view, or list, is made of are connected to the inputs where autograd records
  // backward. Values inside a forward text are not.
  bool is_connected_again(const Node& node) const {
    return std::all_of(node.inputs().begin(), node.inputs().end(), [this](const Value* operand) {
      const Node& maker = *operand->node();
      return is_number_like(*operand) || connected_.contains(operand) || &maker == graph_.body().param_node() ||
             (is_repeatable(maker) && is_connected_again(maker));
    });
  }

  // Saved values in the order of inputs, outputs and the program.
  void order_saved() {
    GradientSignature& signature = graphs_.signature;
    for (size_t i = joint_.params; i < joint_.forward_inputs; ++i) {
      if (saved_.erase(graph_.inputs()[i]) != 0) {
        signature.saved_inputs.push_back({i, {}});
        ordered_.push_back(graph_.inputs()[i]);
      }
    }
    for (size_t i = 0; i < outputs_.size() && !joint_.is_block; ++i) {
      if (saved_.erase(outputs_[i]) != 0) {
        signature.saved_outputs.push_back({i, {}});
        ordered_.push_back(outputs_[i]);
      }
    }
    const auto add = [&](Value* value) {
      if (saved_.contains(value)) {
        intermediates_.push_back(value);
      }
    };
    std::for_each(graph_.inputs().begin(), graph_.inputs().begin() + static_cast<std::ptrdiff_t>(joint_.params), add);
    for (const Node* node : graph_.body().nodes()) {
      std::for_each(node->outputs().begin(), node->outputs().end(), add);
    }
    signature.intermediates = intermediates_.size();
    ordered_.insert(ordered_.end(), intermediates_.begin(), intermediates_.end());
  }

  void find_paths() {
    GradientSignature& signature = graphs_.signature;
    std::vector<Dependence> paths = gradient_paths(*graphs_.backward, signature.outputs.size(),
                                                   signature.saved_inputs.size() + signature.saved_outputs.size());
    auto next = paths.begin();
    for (auto* saved : {&signature.saved_inputs, &signature.saved_outputs}) {
      for (GradientSignature::Saved& each : *saved) {
        each.paths = std::move(*next++);
      }
    }
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
    };
    const auto first_gradient = graph_.inputs().begin() + static_cast<std::ptrdiff_t>(joint_.forward_inputs);
    const size_t outputs = graphs_.signature.outputs.size();
    std::vector<size_t>& differentiable = graphs_.signature.differentiable_intermediates;
    std::for_each(first_gradient, first_gradient + static_cast<std::ptrdiff_t>(outputs),
                  [&](const Value* gradient) { enter(*gradient); });
    std::vector<size_t> unused;  // inputs for gradients that backward of backward does not bring
    for (const auto& [value, gradient] : joint_.intermediates) {
      const auto found = std::find(intermediates_.begin(), intermediates_.end(), value);
      if (found != intermediates_.end() && placed_.insert(value).second) {
        differentiable.push_back(static_cast<size_t>(found - intermediates_.begin()));
      } else {
        unused.push_back(backward->inputs().size());
      }
      enter(*gradient);
    }
    enter(*graph_.inputs().back());
    for (const Value* saved : ordered_) {
      enter(*saved);
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
    remove_undefined_inputs(*backward, unused);
    const BackwardForm all{std::vector<Definedness>(outputs, Definedness::kAll)};
    graphs_.backward = specialize_backward(*backward, differentiable.size(), all);
    graphs_.general_backward = std::move(backward);
  }

  static void enter_constant(Graph& graph, const Value& value, ValueMap& copies) {
    if (value.constant() != nullptr && !copies.contains(&value)) {
      graph.copy_node(*value.node(), graph.body().return_node(), copies);
    }
  }

  // Leaves what forward computes: the outputs, the intermediates and the conditions.
  void strip_forward() {
    Block& body = graph_.body();
    while (body.returns().size() > outputs_.size()) {
      body.remove_return(body.returns().size() - 1);
    }
    for (const Values* values : {&intermediates_, &conditions_}) {
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
  std::unordered_set<const Value*> connected_;  // to the inputs where autograd records backward: results of operators
  std::unordered_set<Value*> saved_;
  std::unordered_set<const Value*> placed_;
  Values ordered_;        // all saved values
  Values intermediates_;  // those that are neither input nor output
  DifferentiableGraphs graphs_;
};

}  // namespace

DifferentiableGraphs split_joint_graph(JointGraph joint) { return Splitting(std::move(joint)).run(); }

}  // namespace sconce
