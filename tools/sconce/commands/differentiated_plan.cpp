#include "tools/sconce/commands/differentiated_plan.h"

#include "tools/sconce/check/gradients.h"

#include "autodiff/differentiate.h"
#include "executor/argument_spec/argument_spec.h"
#include "executor/argument_spec/facts_of_spec.h"
#include "executor/callee_table.h"
#include "executor/compile.h"
#include "ir/differentiable.h"
#include "ir/text/printed_names.h"
#include "plan/autograd/backward_node.h"
#include "plan/run_plan.h"

#include <ATen/Context.h>
#include <c10/core/GradMode.h>

#include <unordered_map>
#include <unordered_set>

namespace sconce::cli {
namespace {

using SavedByFunction = std::unordered_map<const DifferentiableFunction*, std::vector<c10::IValue>>;

// Returns what the autograd nodes of differentiable subgraphs keep that the tensors' gradients depend on. Of several runs of
// a subgraph, the one nearest to the tensors counts.
SavedByFunction saved_for(const std::vector<at::Tensor>& tensors) {
  std::vector<torch::autograd::Node*> queue;
  std::unordered_set<torch::autograd::Node*> seen;
  const auto add = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) {
      queue.push_back(node);
    }
  };
  for (const at::Tensor& tensor : tensors) {
    add(tensor.grad_fn().get());
  }
  SavedByFunction saved;
  for (size_t next = 0; next < queue.size(); ++next) {
    torch::autograd::Node* const node = queue[next];  // the queue grows
    if (auto* backward = dynamic_cast<BackwardNode*>(node)) {
      saved.try_emplace(&backward->function(), backward->saved_values());
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      add(edge.function.get());
    }
  }
  return saved;
}

// Returns the values that the subgraph keeps, without what a run held.
std::vector<SavedValue> saved_of(const Node& node, const Graph& forward, const Graph& backward) {
  std::vector<SavedValue> saved;
  const GradientSignature& signature = gradient_signature(node);
  for (const GradientSignature::Saved& input : signature.saved_inputs) {
    saved.push_back({"input", forward.inputs()[input.position]});
  }
  for (const GradientSignature::Saved& output : signature.saved_outputs) {
    saved.push_back({"output", forward.outputs()[output.position]});
  }
  for (const Value* intermediate : forward.outputs().slice(node.outputs().size(), signature.intermediates)) {
    saved.push_back({"intermediate", intermediate});
  }
  std::vector<const Value*> values;
  for (const SavedValue& each : saved) {
    values.push_back(each.value);
  }
  const std::vector<std::string> names = printed_names(forward, values);
  // Backward's inputs are gradients, then the saved values.
  const c10::ArrayRef<Value*> inputs = backward.inputs();
  const std::vector<const Value*> received(inputs.end() - static_cast<std::ptrdiff_t>(saved.size()), inputs.end());
  const std::vector<std::string> backward_names = printed_names(backward, received);
  for (size_t i = 0; i < saved.size(); ++i) {
    saved[i].name = names[i];
    saved[i].backward_name = backward_names[i];
  }
  return saved;
}

// Returns how many graphs the node has: the text form numbers subgraphs in the order of their nodes.
size_t graphs_of_node(const Node& node) {
  size_t graphs = 0;
  for (const Attribute& attribute : node.attributes()) {
    graphs += std::holds_alternative<std::shared_ptr<Graph>>(attribute.value) ? 1 : 0;
  }
  return graphs;
}

std::vector<DifferentiableSubgraph> subgraphs_of(const Plan& plan, const SavedByFunction& held) {
  std::unordered_map<const Node*, const DifferentiableFunction*> functions;
  for (const Plan::PlannedStep& step : plan.steps()) {
    if (const DifferentiableFunction* function = function_of(*step.step)) {
      functions[step.node] = function;
    }
  }
  std::vector<DifferentiableSubgraph> subgraphs;
  size_t number = 0;
  for_each_node(plan.graph()->body(), [&](Node* node) {
    const size_t graphs = graphs_of_node(*node);
    if (const auto found = functions.find(node); found != functions.end()) {
      const Graph& forward = *node->attribute_as<std::shared_ptr<Graph>>(attr::kSubgraph);
      const Graph& backward = *node->attribute_as<std::shared_ptr<Graph>>(attr::kBackward);
      subgraphs.push_back({node, found->second->name,
                           std::string(node->kind().toQualString()) + "_" + std::to_string(number), &forward, &backward,
                           saved_of(*node, forward, backward)});
      std::vector<SavedValue>& saved = subgraphs.back().saved;
      if (const auto run = held.find(found->second); run != held.end() && run->second.size() == saved.size()) {
        for (size_t i = 0; i < saved.size(); ++i) {
          saved[i].held = run->second[i];
        }
      }
    }
    number += graphs;
  });
  return subgraphs;
}

}  // namespace

Expected<DifferentiatedPlan> differentiated_plan(const Graph& inlined, const Graph& optimized,
                                                 std::vector<c10::IValue> arguments, uint64_t seed, const Options& options) {
  const at::AutoGradMode records(true);
  const ArgumentSpecCreator specs(inlined);
  ArgumentSpec spec;
  specs.create(arguments, spec);
  if (!spec.requires_grad()) {
    return Refusal::because("no argument and no parameter requires a gradient");
  }
  if (spec.has_exotic()) {
    return Refusal::because("an argument is an exotic tensor or a long container, for which no plan is specialized");
  }
  const auto callees = CalleeTable::make(options);
  CompileSettings settings(options);
  settings.callees = callees.get();
  settings.compile = CompileMode::kNever;  // kernels are not shown
  const std::vector<int64_t> symbolic_sizes = specs.symbolic_sizes(arguments);
  auto compiled = compile_specialized(
      optimized, [&](Graph& graph) { return facts_of_spec(graph, specs, spec.words(), symbolic_sizes); }, settings);
  if (!compiled) {
    return compiled.refusal();
  }
  if (compiled->plan == nullptr) {
    return Refusal::because("what is known about the arguments changes no node");
  }
  at::manual_seed(seed);
  const Plan& plan = *compiled->plan;
  run_plan(plan, arguments, AutogradUse::kAll);
  std::vector<at::Tensor> results;
  for (const c10::IValue& result : arguments) {
    const std::vector<at::Tensor> tensors = differentiable_tensors(result);
    results.insert(results.end(), tensors.begin(), tensors.end());
  }
  DifferentiatedPlan differentiated{plan.graph(), subgraphs_of(plan, saved_for(results))};
  if (differentiated.subgraphs.empty()) {
    return Refusal::because("the plan has no differentiable subgraph; 'sconce explain' tells why");
  }
  return differentiated;
}

}  // namespace sconce::cli
