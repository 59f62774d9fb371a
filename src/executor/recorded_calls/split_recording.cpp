#include "executor/recorded_calls/split_recording.h"

#include "analysis/effects.h"
#include "analysis/memory/memory_source.h"
#include "analysis/nested_uses.h"
#include "autodiff/select/roles.h"
#include "executor/recorded_calls/graph_copy.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

using Nodes = std::unordered_set<const Node*>;
using Dependences = std::vector<bool>;  // per gradient of a result

// Adds those of the nodes, in program order.
void add_nodes(const Graph& from, const Nodes& nodes, GraphCopy& copy) {
  for (const Node* node : from.body().nodes()) {
    if (nodes.contains(node)) {
      copy.add_node(*node);
    }
  }
}

class RecordingSplitter {
 public:
  RecordingSplitter(const Graph& graph, size_t symbols, size_t tensors, size_t outputs, size_t gradients,
                    const Node* last_of_forward)
      : graph_(graph), symbols_(symbols), first_gradient_(symbols + tensors), outputs_(outputs), gradients_(gradients) {
    for (const Node* node = last_of_forward; node != nullptr; node = node->previous()) {
      ran_forward_.insert(node);
    }
  }

  RecordingParts run() {
    find_backward();
    find_dependences();
    copy_parts();
    return std::move(parts_);
  }

 private:
  auto of_backward() const { return graph_.outputs().slice(outputs_); }
  bool is_input(const Value& value) const { return value.node() == graph_.body().param_node(); }

  // Every node runs in the phase in which it ran when it was recorded: it may read what a later one writes. But for views of
  // what forward leaves: backward makes them again, of values whose versions are checked.
  void find_backward() {
    for (const Value* output : of_backward()) {
      need(*output);
    }
    for (const Node* node : graph_.body().nodes()) {
      if (!ran_forward_.contains(node) && has_effects(*node)) {
        compute_in_backward(*node);
      }
    }
  }

  void need(const Value& value) {
    const Node& node = *value.node();
    if (value.constant() != nullptr || (is_input(value) && value.offset() >= first_gradient_)) {
      return;
    }
    if (is_input(value) || (ran_forward_.contains(&node) && (!is_cheap_view(node) || node.op().may_copy))) {
      saved_.insert(&value);
    } else {
      compute_in_backward(node);
    }
  }

  void compute_in_backward(const Node& node) {
    if (backward_.insert(&node).second) {
      for_each_operand(node, [this](const Value* operand) { need(*operand); });
    }
  }

  // Finds which gradients of results each gradient of a tensor depends on, and which results share a node of autograd.
  void find_dependences() {
    const size_t incoming = graph_.inputs().size() - first_gradient_;
    parts_.shares.assign(incoming, Dependences(incoming));
    for (size_t i = 0; i < incoming; ++i) {
      Dependences& on = depends_[graph_.inputs()[first_gradient_ + i]];
      on.resize(incoming);
      on[i] = true;
      parts_.shares[i][i] = true;
    }
    for (const Node* node : graph_.body().nodes()) {
      note_dependences(*node);
    }
    for (const Value* number : of_backward().slice(gradients_)) {
      parts_.reads_gradients = parts_.reads_gradients || depends_.contains(number);
    }
    for (size_t i = 0; i < incoming; ++i) {
      parts_.reaches.emplace_back();
      for (const Value* gradient : of_backward().slice(0, gradients_)) {
        const auto found = depends_.find(gradient);
        parts_.reaches[i].push_back(found == depends_.end() || found->second[i]);  // zeros of known sizes read no gradient
      }
    }
  }

  // Finds what autograd checks before a backward that has some of the gradients.
  void find_needs(const std::vector<const Value*>& saved) {
    parts_.needs.assign(graph_.inputs().size() - first_gradient_, Dependences(saved.size()));
    std::unordered_map<const Value*, size_t> numbers;
    for (size_t i = 0; i < saved.size(); ++i) {
      numbers.emplace(saved[i], i);
    }
    for (const Node* node : graph_.body().nodes()) {
      const Dependences on = backward_.contains(node) ? dependences_of(*node) : Dependences();
      if (on.empty()) {
        continue;
      }
      std::unordered_set<const Value*> read;
      for_each_operand(*node, [&](const Value* operand) { find_read(*operand, read); });
      for (const Value* value : read) {
        const auto found = numbers.find(value);
        for (size_t gradient = 0; gradient < on.size() && found != numbers.end(); ++gradient) {
          parts_.needs[gradient][found->second] = parts_.needs[gradient][found->second] || on[gradient];
        }
      }
    }
  }

  // Adds the values of forward from which backward computes the value without a gradient.
  void find_read(const Value& value, std::unordered_set<const Value*>& read) const {
    if (depends_.contains(&value) || value.constant() != nullptr || !read.insert(&value).second) {
      return;
    }
    if (const Node& node = *value.node(); backward_.contains(&node)) {
      for_each_operand(node, [&](const Value* operand) { find_read(*operand, read); });
    }
  }

  // Returns which gradients of results the operands depend on; empty if none.
  Dependences dependences_of(const Node& node) const {
    Dependences all;
    for (const Value* operand : node.inputs()) {
      if (const auto found = depends_.find(operand); found != depends_.end()) {
        add_to(all, found->second);
      }
    }
    return all;
  }

  void note_dependences(const Node& node) {
    const Dependences all = dependences_of(node);
    if (all.empty()) {
      return;
    }
    // A sum is of gradients that come from several nodes; what is computed of it is of one that they share. It frees what
    // it reads of forward.
    const bool frees = node.opcode() != Opcode::kAdd && std::ranges::any_of(node.inputs(), [this](const Value* operand) {
                         return operand->type()->kind() == c10::TypeKind::TensorType && !depends_.contains(operand);
                       });
    for (size_t i = 0; i < all.size() && frees; ++i) {
      for (size_t k = 0; k < all.size() && all[i]; ++k) {
        parts_.shares[i][k] = parts_.shares[i][k] || all[k];
      }
    }
    for (const Value* output : node.outputs()) {
      depends_[output] = all;
    }
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (node.schema() != nullptr && may_write_operand(node, i)) {
        for_each_base(*node.input(i), [&](const Value& written) { add_to(depends_[&written], all); });
      }
    }
  }

  static void add_to(Dependences& all, const Dependences& more) {
    all.resize(more.size());
    std::transform(all.begin(), all.end(), more.begin(), all.begin(), std::logical_or<>());
  }

  // Calls `visit` for the value and what it may be a view of.
  static void for_each_base(const Value& value, c10::function_ref<void(const Value&)> visit) {
    for (const Value* base = &value; base != nullptr; base = source_of_memory(*base)) {
      visit(*base);
    }
  }

  void copy_parts() {
    GraphCopy forward;
    GraphCopy backward;
    const auto inputs = graph_.inputs();
    for (size_t i = 0; i < first_gradient_; ++i) {
      forward.add_input(*inputs[i]);
    }
    for (const Value* gradient : inputs.slice(first_gradient_)) {
      backward.add_input(*gradient);
    }
    for (const Value* symbol : inputs.slice(0, symbols_)) {
      backward.add_input(*symbol);
    }
    add_nodes(graph_, ran_forward_, forward);
    for (const Value* output : graph_.outputs().slice(0, outputs_)) {
      forward.add_output(*output);
    }
    std::vector<const Value*> checked;
    for (size_t i = symbols_; i < first_gradient_; ++i) {
      if (saved_.erase(inputs[i]) != 0) {
        parts_.saved_inputs.push_back(i - symbols_);
        checked.push_back(inputs[i]);
        backward.add_input(*inputs[i]);
      }
    }
    for (size_t i = 0; i < outputs_; ++i) {
      if (saved_.erase(graph_.outputs()[i]) != 0) {
        parts_.saved_outputs.push_back(i);
        checked.push_back(graph_.outputs()[i]);
        backward.add_input(*graph_.outputs()[i]);
      }
    }
    find_needs(checked);
    for (const Node* node : graph_.body().nodes()) {
      for (const Value* output : node->outputs()) {
        if (saved_.contains(output)) {
          forward.add_output(*output);
          backward.add_input(*output);
        }
      }
    }
    add_nodes(graph_, backward_, backward);
    for (const Value* output : of_backward()) {
      backward.add_output(*output);
    }
    parts_.forward = forward.take();
    parts_.backward = backward.take();
  }

  const Graph& graph_;
  const size_t symbols_;
  const size_t first_gradient_;  // among the inputs
  const size_t outputs_;
  const size_t gradients_;
  Nodes ran_forward_;
  Nodes backward_;
  std::unordered_set<const Value*> saved_;
  std::unordered_map<const Value*, Dependences> depends_;
  RecordingParts parts_;
};

}  // namespace

RecordingParts split_recording(const Graph& recorded, size_t symbols, size_t tensors, size_t outputs, size_t gradients,
                               const Node* last_of_forward) {
  return RecordingSplitter(recorded, symbols, tensors, outputs, gradients, last_of_forward).run();
}

}  // namespace sconce
