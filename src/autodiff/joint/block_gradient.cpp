#include "autodiff/joint/block_gradient.h"

#include "analysis/cut_out.h"
#include "analysis/effects.h"
#include "analysis/nesting.h"
#include "autodiff/joint/build_nodes.h"
#include "autodiff/joint/joint_graph.h"
#include "autodiff/select/roles.h"
#include "autodiff/split/split_joint_graph.h"
#include "ir/constant_operands.h"

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

// Returns the lists from outside of the node to which nodes nested in the block append.
std::vector<Value*> lists_appended_in(const Block& block, const Node& node) {
  std::vector<Value*> lists;
  for_each_node(block, [&](const Node* nested) {
    if (nested->opcode() == Opcode::kAppend && !is_inside(nested->input(0)->node(), node) &&
        std::find(lists.begin(), lists.end(), nested->input(0)) == lists.end()) {
      lists.push_back(nested->input(0));
    }
  });
  return lists;
}

void clear(Block& block) {
  while (!block.returns().empty()) {
    block.remove_return(block.returns().size() - 1);
  }
  while (Node* last = block.last()) {
    last->erase();
  }
}

class BlockDifferentiator {
 public:
  BlockDifferentiator(Node& node, size_t index)
      : node_(node), block_(*node.block(index)), returns_(block_.returns().size()) {}

  BlockGradient run(c10::function_ref<bool(const Value*)> is_reached, const RunPass& run_passes) {
    found_.lists = lists_appended_in(block_, node_);
    const CutOut cut = cut_out(block_, found_.lists, TensorConstants::kOperands);
    found_.operands = cut.operands;
    std::vector<bool> is_differentiable;
    for (size_t i = 0; i < block_.params().size(); ++i) {
      // The next iteration takes what this one returns as its param.
      is_differentiable.push_back(may_require_grad(*block_.params()[i]) || may_require_grad(*block_.returns()[i]));
    }
    for (const Value* operand : cut.operands) {
      is_differentiable.push_back(may_require_grad(*operand) && is_reached(operand));
    }
    const size_t params = block_.params().size();
    JointGraph joint = differentiate_block(cut.subgraph, params, is_differentiable, run_passes);
    if (!joint.has_gradient()) {
      return std::move(found_);
    }
    DifferentiableGraphs graphs = split_joint_graph(std::move(joint));
    found_.backward = std::move(graphs.general_backward);
    found_.signature = std::move(graphs.signature);
    for (const GradientSignature::Saved& input : found_.signature.saved_inputs) {
      found_.saved.push_back({SavedValue::Kind::kOperand, found_.operands[input.position - params]});
    }
    rebuild(*graphs.forward);
    for (const size_t intermediate : found_.signature.differentiable_intermediates) {
      found_.intermediates.push_back(found_.saved[found_.signature.saved_inputs.size() + intermediate].value);
    }
    return std::move(found_);
  }

 private:
  // Replaces the block's nodes by those of the forward graph, which returns the intermediates after what the block returns
  // and the lists.
  void rebuild(const Graph& forward) {
    clear(block_);
    ValueMap values;
    for (size_t i = 0; i < forward.inputs().size(); ++i) {
      const size_t params = block_.params().size();
      values[forward.inputs()[i]] = i < params ? block_.params()[i] : found_.operands[i - params];
    }
    Node* const end = block_.return_node();
    const std::vector<Value*> results = node_.graph().copy_nodes(forward.body(), end, values);
    for (size_t i = 0; i < returns_; ++i) {
      block_.add_return(results[i]);
    }
    for (size_t i = returns_ + found_.lists.size(); i < results.size(); ++i) {
      const bool is_iteration = node_.opcode() == Opcode::kLoop && results[i] == block_.params()[0];
      if (is_iteration) {
        found_.saved.push_back({SavedValue::Kind::kIteration, nullptr});
      } else if (is_invariant(*results[i]->node())) {
        results[i]->node()->detach();
        results[i]->node()->insert_before(&node_);
        found_.saved.push_back({SavedValue::Kind::kOperand, results[i]});
      } else {
        Value* list = insert_empty_list(results[i]->type(), &node_);
        insert_append(list, results[i], end);
        set_missing_location(*list->node(), node_.location());
        set_missing_location(*end->previous(), node_.location());
        found_.saved.push_back({SavedValue::Kind::kElement, list});
      }
    }
  }

  // Returns whether the node asks a tensor from outside for its sizes or the like. Every run of the block would save the
  // same.
  bool is_invariant(const Node& node) const {
    return node.owning_block() == &block_ && node.inputs().size() == 1 && node.schema() != nullptr &&
           node.op().reads == Reads::kMetadata && !has_effects(node) && is_tensor(*node.input(0)) &&
           !is_inside(node.input(0)->node(), node_);
  }

  Node& node_;
  Block& block_;
  const size_t returns_;
  BlockGradient found_;
};

}  // namespace

BlockGradient differentiate_nested(Node& node, size_t index, c10::function_ref<bool(const Value*)> is_reached,
                                   const RunPass& run) {
  return BlockDifferentiator(node, index).run(is_reached, run);
}

}  // namespace sconce
