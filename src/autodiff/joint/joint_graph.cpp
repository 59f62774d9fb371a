#include "autodiff/joint/joint_graph.h"

#include "autodiff/joint/joint_graph_builder.h"
#include "autodiff/select/roles.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/simplify/propagate_facts.h"
#include "passes/simplify/simplify.h"

#include <utility>

namespace sconce {
namespace {

// Folds the branches of texts that facts decide. Gradient inputs have the symbols of the outputs, so that not every symbol
// is known to be other than 1.
JointGraph folded(JointGraph joint) {
  if (joint.has_gradient()) {
    const auto propagate = [](Graph& graph) {
      return propagate_facts(graph, InputAssumptions{.grad_mode = false}, KnownNumbers::kFold);
    };
    run_pass(joint.run, "propagate_facts", propagate, *joint.graph);
    simplify(*joint.graph, joint.run);
    run_pass(joint.run, "eliminate_dead_nodes", eliminate_dead_nodes, *joint.graph);
  }
  return joint;
}

}  // namespace

void JointGraph::refresh() {
  const size_t first = forward_outputs + signature.inputs.size();
  for (size_t i = 0; i < intermediates.size(); ++i) {
    intermediates[i].value = graph->outputs()[first + i];
  }
}

JointGraph differentiate_forward(std::shared_ptr<Graph> forward, const RunPass& run) {
  std::vector<bool> is_differentiable;
  for (const Value* input : forward->inputs()) {
    is_differentiable.push_back(may_require_grad(*input));
  }
  return folded(JointGraphBuilder({.graph = std::move(forward), .run = run}).run(is_differentiable));
}

JointGraph differentiate_block(std::shared_ptr<Graph> block, size_t params, const std::vector<bool>& is_differentiable,
                               const RunPass& run) {
  JointGraph joint{.graph = std::move(block), .params = params, .is_block = true, .run = run};
  return folded(JointGraphBuilder(std::move(joint)).run(is_differentiable));
}

}  // namespace sconce
