#include "executor/joint/split_recording.h"

#include "analysis/effects.h"
#include "analysis/nested_uses.h"
#include "autodiff/joint/joint_graph.h"
#include "autodiff/split/partition.h"

#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

namespace sconce {
namespace {

// Copies nodes of a graph to a new one.
class GraphCopy {
 public:
  void add_input(const Value& value) {
    Value* input = graph_->add_input(value.name(), value.type());
    if (value.facts() != nullptr) {
      input->set_facts(*value.facts());
    }
    copies_[&value] = input;
  }
  void add_nodes(const Graph& from, const std::unordered_set<const Node*>& nodes) {
    for (const Node* node : from.body().nodes()) {
      if (nodes.contains(node)) {
        for_each_operand(*node, [this](Value* operand) { add_constant(*operand); });
        graph_->copy_node(*node, graph_->body().return_node(), copies_);
      }
    }
  }
  void add_output(const Value& value) {
    add_constant(value);
    graph_->add_output(copies_.at(&value));
  }
  std::unique_ptr<Graph> take() { return std::move(graph_); }

 private:
  void add_constant(const Value& value) {
    if (value.constant() != nullptr && !copies_.contains(&value)) {
      graph_->copy_node(*value.node(), graph_->body().return_node(), copies_);
    }
  }

  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  ValueMap copies_;
};

void add_to(std::vector<bool>& all, const std::vector<bool>& more) {
  all.resize(more.size());
  std::transform(all.begin(), all.end(), more.begin(), all.begin(), std::logical_or<>());
}

// Calls `visit` for the value and what it may be a view of.
void for_each_base(const Value& value, c10::function_ref<void(const Value&)> visit) {
  visit(value);
  const Node& maker = *value.node();
  if (maker.schema() != nullptr && !maker.inputs().empty() && !produces_new_tensor(maker)) {
    for_each_base(*maker.input(0), visit);
  }
}

// Returns, per gradient of an output, which gradients that backward returns depend on it.
std::vector<std::vector<bool>> find_reached(const JointGraph& joint) {
  const size_t incoming = joint.graph->inputs().size() - joint.forward_inputs;
  std::unordered_map<const Value*, std::vector<bool>> depends;
  for (size_t i = 0; i < incoming; ++i) {
    std::vector<bool>& on = depends[joint.graph->inputs()[joint.forward_inputs + i]];
    on.resize(incoming);
    on[i] = true;
  }
  for (const Node* node : joint.graph->body().nodes()) {
    std::vector<bool> all;
    for (const Value* operand : node->inputs()) {
      if (const auto found = depends.find(operand); found != depends.end()) {
        add_to(all, found->second);
      }
    }
    if (all.empty()) {
      continue;
    }
    for (const Value* output : node->outputs()) {
      depends[output] = all;
    }
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (node->schema() != nullptr && may_write_operand(*node, i)) {
        for_each_base(*node->input(i), [&](const Value& written) { add_to(depends[&written], all); });
      }
    }
  }
  std::vector<std::vector<bool>> reaches(incoming, std::vector<bool>(joint.gradients().size()));
  for (size_t input = 0; input < joint.gradients().size(); ++input) {
    const auto found = depends.find(joint.gradients()[input]);
    for (size_t i = 0; i < incoming; ++i) {
      reaches[i][input] = found == depends.end() || found->second[i];  // zeros of known sizes read no gradient
    }
  }
  return reaches;
}

}  // namespace

RecordingParts split_recording(std::unique_ptr<Graph> recorded, size_t symbols, size_t tensors, size_t outputs,
                               const Node* last_of_forward) {
  JointGraph joint;
  joint.graph = std::move(recorded);
  joint.forward_inputs = symbols + tensors;
  joint.forward_outputs = outputs;
  joint.signature.inputs.resize(joint.graph->outputs().size() - outputs);
  joint.last_of_forward = last_of_forward;
  const Partition parts = partition(joint);
  const Graph& graph = *joint.graph;
  RecordingParts split;
  split.reaches = find_reached(joint);
  GraphCopy forward;
  GraphCopy backward;
  const auto inputs = graph.inputs();
  for (size_t i = 0; i < joint.forward_inputs; ++i) {
    forward.add_input(*inputs[i]);
  }
  for (size_t i = 0; i < symbols; ++i) {
    backward.add_input(*inputs[i]);
  }
  for (size_t i = joint.forward_inputs; i < inputs.size(); ++i) {
    backward.add_input(*inputs[i]);
  }
  forward.add_nodes(graph, parts.forward);
  for (const Value* output : joint.outputs()) {
    forward.add_output(*output);
  }
  std::unordered_set<const Value*> left = parts.saved;
  for (size_t i = 0; i < joint.forward_inputs; ++i) {
    if (left.erase(inputs[i]) != 0 && i >= symbols) {
      split.saved_inputs.push_back(i - symbols);
      backward.add_input(*inputs[i]);
    }
  }
  for (size_t i = 0; i < outputs; ++i) {
    if (left.erase(graph.outputs()[i]) != 0) {
      split.saved_outputs.push_back(i);
      backward.add_input(*graph.outputs()[i]);
    }
  }
  for (const Node* node : graph.body().nodes()) {
    for (const Value* output : node->outputs()) {
      if (left.contains(output)) {
        forward.add_output(*output);
        backward.add_input(*output);
        ++split.kept;
      }
    }
  }
  backward.add_nodes(graph, parts.backward);
  for (const Value* gradient : joint.gradients()) {
    backward.add_output(*gradient);
  }
  split.forward = forward.take();
  split.backward = backward.take();
  return split;
}

}  // namespace sconce
