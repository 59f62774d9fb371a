#include "autodiff/split/split_joint_graph.h"

#include "analysis/gradient_paths.h"
#include "autodiff/split/graph_copy.h"
#include "autodiff/split/partition.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/required/specialize_backward.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

using Values = std::vector<Value*>;

// Copies backward out of the joint graph. What is left of the joint graph becomes forward.
class JointGraphSplitter {
 public:
  explicit JointGraphSplitter(JointGraph joint) : joint_(std::move(joint)), graph_(*joint_.graph) {
    // Passes have folded the graph, and may have replaced intermediates (JointGraph::refresh).
    joint_.refresh();
    partition_ = partition(joint_);
    graphs_.signature = joint_.signature;
  }

  DifferentiableGraphs run() {
    order_saved();
    build_backward();
    find_paths();
    // strip_forward comes last: it erases the nodes that backward is copied from.
    strip_forward();
    return std::move(graphs_);
  }

 private:
  // Orders the saved values: inputs, outputs, then the others as the program computes them. A value that is both input and
  // output counts as an input. Of a block, params and outputs are intermediates: each run has others, which lists keep.
  void order_saved() {
    GradientSignature& signature = graphs_.signature;
    std::unordered_set<const Value*>& left = partition_.saved;
    const size_t symbols = joint_.recording ? joint_.recording->symbols : 0;
    for (size_t i = joint_.params; i < joint_.forward_inputs; ++i) {
      if (left.erase(graph_.inputs()[i]) != 0 || i < symbols) {
        signature.saved_inputs.push_back({i, {}});
        saved_.push_back(graph_.inputs()[i]);
      }
    }
    for (size_t i = 0; i < joint_.forward_outputs && !joint_.is_block; ++i) {
      if (left.erase(graph_.outputs()[i]) != 0) {
        signature.saved_outputs.push_back({i, {}});
        saved_.push_back(graph_.outputs()[i]);
      }
    }
    const auto add_intermediate = [&](Value* value) {
      if (left.contains(value)) {
        intermediates_.push_back(value);
      }
    };
    for (Value* param : graph_.inputs().slice(0, joint_.params)) {
      add_intermediate(param);
    }
    for (const Node* node : graph_.body().nodes()) {
      std::ranges::for_each(node->outputs(), add_intermediate);
    }
    signature.intermediates = intermediates_.size();
    saved_.insert(saved_.end(), intermediates_.begin(), intermediates_.end());
  }

  // Copies what backward computes to a graph of its own. Inputs: the gradients of outputs, the gradients of intermediates,
  // the bool, the saved values.
  void build_backward() {
    GraphCopy copy;
    const size_t outputs = graphs_.signature.outputs.size();
    for (const Value* gradient : graph_.inputs().slice(joint_.forward_inputs, outputs)) {
      copy.add_input(*gradient);
    }
    const std::vector<size_t> unused = enter_gradients_of_intermediates(copy, outputs);
    if (!joint_.recording) {
      copy.add_input(*graph_.inputs().back());
    }
    for (const Value* saved : saved_) {
      copy.add_input(*saved);
    }
    for (const Node* node : graph_.body().nodes()) {
      if (partition_.backward.contains(node)) {
        copy.add_node(*node);
      }
    }
    for (const Value* output : joint_.backward_outputs()) {
      copy.add_output(*output);
    }
    std::shared_ptr<Graph> backward = copy.take();
    if (joint_.recording) {
      graphs_.backward = std::move(backward);
      return;
    }
    // Once the graph is complete: `unused` are positions among all inputs. specialize_backward then counts only the
    // gradients of intermediates that are left.
    remove_undefined_inputs(*backward, unused);
    const BackwardForm all{std::vector<Definedness>(outputs, Definedness::kAll)};
    graphs_.backward = specialize_backward(*backward, graphs_.signature.differentiable_intermediates.size(), all);
    graphs_.general_backward = std::move(backward);
  }

  // Returns the positions of the gradients that no run has: double backward brings one only to a value that backward read,
  // and once to a value that stands for two intermediates since passes merged them.
  std::vector<size_t> enter_gradients_of_intermediates(GraphCopy& copy, size_t first) {
    std::vector<size_t>& differentiable = graphs_.signature.differentiable_intermediates;
    std::vector<size_t> unused;
    for (const auto& [value, gradient] : joint_.intermediates) {
      const auto number = static_cast<size_t>(std::ranges::find(intermediates_, value) - intermediates_.begin());
      const bool is_new = std::ranges::find(differentiable, number) == differentiable.end();
      if (number < intermediates_.size() && is_new) {
        differentiable.push_back(number);
      } else {
        unused.push_back(first);
      }
      copy.add_input(*gradient);
      ++first;
    }
    return unused;
  }

  // Before passes optimize backward: a merged node would read a value for more gradients than eager execution does.
  void find_paths() {
    GradientSignature& signature = graphs_.signature;
    std::vector<Dependence> paths = gradient_paths(*graphs_.backward, signature.outputs.size(), signature.inputs.size(),
                                                   signature.saved_inputs.size() + signature.saved_outputs.size());
    auto next = paths.begin();
    for (auto* saved : {&signature.saved_inputs, &signature.saved_outputs}) {
      for (GradientSignature::Saved& each : *saved) {
        each.paths = std::move(*next++);
      }
    }
  }

  // Leaves what forward computes: the outputs, the intermediates and the conditions.
  void strip_forward() {
    Block& body = graph_.body();
    // A copy: the conditions are returns, which are removed next.
    const Values conditions = joint_.conditions().vec();
    while (body.returns().size() > joint_.forward_outputs) {
      body.remove_return(body.returns().size() - 1);
    }
    std::ranges::for_each(intermediates_, [&](Value* value) { body.add_return(value); });
    std::ranges::for_each(conditions, [&](Value* value) { body.add_return(value); });
    // The walk begins at the last node: a node is erased after its users.
    for (Node* node = body.last(); node != nullptr;) {
      Node* previous = node->previous();
      if (!partition_.forward.contains(node) && node->opcode() != Opcode::kConstant) {
        node->erase();
      }
      node = previous;
    }
    run_pass(joint_.run, "eliminate_dead_nodes", eliminate_dead_nodes, graph_);
    // The nodes that read gradients are gone now.
    while (graph_.inputs().size() > joint_.forward_inputs) {
      body.remove_param(graph_.inputs().size() - 1);
    }
    graphs_.forward = joint_.graph;
  }

  JointGraph joint_;
  Graph& graph_;
  Partition partition_;
  Values saved_;          // in the order of the signature
  Values intermediates_;  // its last ones
  DifferentiableGraphs graphs_;
};

}  // namespace

DifferentiableGraphs split_joint_graph(JointGraph joint) { return JointGraphSplitter(std::move(joint)).run(); }

}  // namespace sconce
