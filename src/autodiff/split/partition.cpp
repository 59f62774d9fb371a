#include "autodiff/split/partition.h"

#include "analysis/effects.h"
#include "analysis/nested_uses.h"
#include "autodiff/select/roles.h"
#include "ir/constant_operands.h"

#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

// Returns whether the node may return a copy of its operand. The operand may then be written until backward: autograd keeps
// the copy.
bool may_copy(const Node& node) {
  if (!node.op().may_copy) {
    return false;
  }
  const TensorFacts* operand = node.input(0)->facts();
  const Value* format = node.named_input("memory_format");
  const bool is_row_major =
      format == nullptr || is_constant_int(*format, static_cast<int64_t>(c10::MemoryFormat::Contiguous));
  return operand == nullptr || !operand->contiguous || !is_row_major;
}

// Answers three questions in order. What can only run backward: it depends on a gradient, or did so when it was recorded?
// What does forward compute for its own sake? What does backward read of the rest, and is it saved or computed again?
class Partitioner {
 public:
  explicit Partitioner(const JointGraph& joint) : joint_(joint), params_(joint.graph->body().param_node()) {
    connected_.insert(joint.outputs().begin(), joint.outputs().end());
    for (const JointGraph::Intermediate& intermediate : joint.intermediates) {
      connected_.insert(intermediate.value);
    }
  }

  Partition run() {
    if (joint_.recording) {
      find_recorded_backward(joint_.recording->last_of_forward);
    } else {
      find_dependent();
    }
    // `need` comes after it, and saves a value that forward computes anyway, rather than compute it twice.
    find_forward();
    for (const Value* output : joint_.backward_outputs()) {
      need(*output);
    }
    for (const Node* node : joint_.graph->body().nodes()) {
      if (only_backward_.contains(node) && has_effects(*node)) {
        compute_in_backward(*node);
      }
    }
    return std::move(partition_);
  }

 private:
  bool is_gradient_input(const Value& value) const {
    // The bool `records` is one of them: forward does not know it either.
    return value.node() == params_ && value.offset() >= joint_.forward_inputs;
  }

  void find_recorded_backward(const Node* last_of_forward) {
    for (const Node* node = joint_.graph->body().last(); node != last_of_forward; node = node->previous()) {
      only_backward_.insert(node);
    }
  }

  void find_dependent() {
    // Program order: what an operand depends on is known. A node with blocks is one node here.
    for (const Node* node : joint_.graph->body().nodes()) {
      bool depends = false;
      for_each_operand(*node, [&](const Value* operand) {
        depends = depends || is_gradient_input(*operand) || only_backward_.contains(operand->node());
      });
      if (depends) {
        only_backward_.insert(node);
      }
    }
  }

  // Results that the node's users outside need, and effects, are computed by forward.
  void find_forward() {
    for (const c10::ArrayRef<Value*> values : {joint_.outputs(), joint_.conditions()}) {
      for (const Value* value : values) {
        compute_in_forward(*value->node());
      }
    }
    for (const Node* node : joint_.graph->body().nodes()) {
      if (!only_backward_.contains(node) && has_effects(*node)) {
        compute_in_forward(*node);
      }
    }
  }

  void compute_in_forward(const Node& node) {
    if (&node == params_ || !partition_.forward.insert(&node).second) {
      return;
    }
    for_each_operand(node, [this](const Value* operand) { compute_in_forward(*operand->node()); });
  }

  // Backward needs the value: it has it from its inputs, from forward, or computes it.
  void need(const Value& value) {
    const Node& node = *value.node();
    // Constants are not saved: backward gets its own (JointGraphSplitter::enter_constant).
    if (value.constant() != nullptr || is_gradient_input(value) || partition_.backward.contains(&node)) {
      return;
    }
    if (!only_backward_.contains(&node) && !is_computed_again(value)) {
      // Forward may not have computed it so far: sizes that only a gradient is summed to.
      compute_in_forward(node);
      partition_.saved.insert(&value);
      return;
    }
    compute_in_backward(node);
  }

  void compute_in_backward(const Node& node) {
    if (partition_.backward.insert(&node).second) {
      for_each_operand(node, [this](const Value* operand) { need(*operand); });
    }
  }

  // Numbers are not computed again: they would keep the tensors alive that they were asked of. Random numbers would differ.
  bool is_computed_again(const Value& value) const {
    const Node& node = *value.node();
    if (&node == params_ || has_effects(node) || is_number_like(value)) {
      return false;
    }
    if (is_cheap_view(node) && !may_copy(node)) {
      return !connected_.contains(&value) || is_connected_again(node);
    }
    return !joint_.recording && !partition_.forward.contains(&node);
  }

  // Returns whether the view, or list, computed again in double backward has the gradients that the saved one would have:
  // all that it is made of is connected. Values inside a forward text are not.
  bool is_connected_again(const Node& node) const {
    return std::all_of(node.inputs().begin(), node.inputs().end(), [this](const Value* operand) {
      const Node& maker = *operand->node();
      return is_number_like(*operand) || connected_.contains(operand) || &maker == params_ ||
             (is_cheap_view(maker) && is_connected_again(maker));
    });
  }

  const JointGraph& joint_;
  const Node* const params_;
  std::unordered_set<const Node*> only_backward_;
  // Results of operators, whose saved copies bring gradients to the inputs in double backward.
  std::unordered_set<const Value*> connected_;
  Partition partition_;
};

}  // namespace

Partition partition(const JointGraph& joint) { return Partitioner(joint).run(); }

}  // namespace sconce
