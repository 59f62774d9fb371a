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
    outputs_.assign(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(joint_.forward_outputs));
    gradients_ =
        Values(outputs.begin() + static_cast<std::ptrdiff_t>(joint_.forward_outputs),
               outputs.begin() + static_cast<std::ptrdiff_t>(joint_.forward_outputs + joint_.differentiable_inputs.size()));
    conditions_ = Values(outputs.end() - static_cast<std::ptrdiff_t>(joint_.conditional_outputs.size()), outputs.end());
  }

  DifferentiableGraphs run() {
    connected_.insert(outputs_.begin(), outputs_.end());
    for (const JointGraph::Inner& inner : joint_.inner) {
      connected_.insert(inner.value);
    }
    find_dependent();
    find_forward();
    for (Value* gradient : gradients_) {
      need(gradient);
    }
    order_captures();
    build_backward();
    graphs_.capture_paths = gradient_paths(*graphs_.backward, joint_.differentiable_outputs.size(),
                                           graphs_.captured_inputs.size() + graphs_.captured_outputs.size());
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
    const size_t outputs = joint_.differentiable_outputs.size();
    std::for_each(first_gradient, first_gradient + static_cast<std::ptrdiff_t>(outputs),
                  [&](const Value* gradient) { enter(*gradient); });
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
    enter(*graph_.inputs().back());
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
    remove_inner_gradients(*backward, outputs, is_captured);
    const BackwardForm all{std::vector<Definedness>(outputs, Definedness::kAll)};
    graphs_.backward = specialize_backward(*backward, graphs_.differentiable_temporaries.size(), all);
    graphs_.general_backward = std::move(backward);
  }

  static void enter_constant(Graph& graph, const Value& value, ValueMap& copies) {
    if (value.constant() != nullptr && !copies.contains(&value)) {
      graph.copy_node(*value.node(), graph.body().return_node(), copies);
    }
  }

  // Removes the gradients of inner values that backward does not read: backward of backward brings none to them.
  static void remove_inner_gradients(Graph& graph, size_t first, const std::vector<bool>& is_captured) {
    std::vector<size_t> removed;
    for (size_t i = 0; i < is_captured.size(); ++i) {
      if (!is_captured[i]) {
        removed.push_back(first + i);
      }
    }
    remove_undefined_inputs(graph, removed);
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
  std::unordered_set<const Value*> connected_;  // to the inputs where autograd records backward: results of operators
  std::unordered_set<Value*> captured_;
  std::unordered_set<const Value*> placed_;
  Values captures_;
  Values temporaries_;
  DifferentiableGraphs graphs_;
};

}  // namespace

DifferentiableGraphs split_joint_graph(JointGraph joint) { return Splitting(std::move(joint)).run(); }

}  // namespace sconce
