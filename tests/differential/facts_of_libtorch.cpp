#include "tests/differential/facts_of_libtorch.h"

#include "tests/differential/memory_claims.h"

#include "executor/compile.h"
#include "load/convert.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/shape_analysis.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/profiling_graph_executor_impl.h>
#include <torch/csrc/jit/runtime/profiling_record.h>

#include <memory>
#include <set>

namespace sconce::testing {
namespace {

using ScriptGraph = std::shared_ptr<torch::jit::Graph>;

torch::jit::Stack stack_of(const std::vector<c10::IValue>& arguments) {
  torch::jit::Stack stack;
  for (const c10::IValue& argument : arguments) {
    stack.push_back(argument.isObject() ? argument : argument.deepcopy());
  }
  return stack;
}

// The type of the argument, and those of the attributes read of it, but of attributes that the method assigns.
void give_type(torch::jit::Value& value, const c10::IValue& held, const std::set<std::string>& assigned) {
  if (held.isTensor() && value.type()->kind() == c10::TypeKind::TensorType) {
    value.setType(c10::TensorType::create(held.toTensor()));
  }
  if (!held.isObject()) {
    return;
  }
  for (const torch::jit::Use& use : value.uses()) {
    if (use.user->kind() == c10::prim::GetAttr && assigned.count(use.user->s(c10::attr::name)) == 0) {
      give_type(*use.user->output(), held.toObjectRef().getAttr(use.user->s(c10::attr::name)), assigned);
    }
  }
}

void find_assigned(const torch::jit::Block& block, std::set<std::string>& assigned) {
  for (const torch::jit::Node* node : block.nodes()) {
    if (node->kind() == c10::prim::SetAttr) {
      assigned.insert(node->s(c10::attr::name));
    }
    for (const torch::jit::Block* inner : node->blocks()) {
      find_assigned(*inner, assigned);
    }
  }
}

std::unique_ptr<Graph> profiled_types(torch::jit::Graph& graph, const std::vector<c10::IValue>& arguments, uint64_t seed) {
  torch::jit::getNumProfiledRuns() = 2;
  auto record = torch::jit::ProfilingRecord::instrumentGraph(graph.copy());
  torch::jit::Code code(record->graph(), "");
  for (int run = 0; run < 2; ++run) {
    at::manual_seed(seed);
    torch::jit::Stack stack = stack_of(arguments);
    torch::jit::InterpreterState(code).run(stack);
  }
  ScriptGraph typed = record->graph()->copy();
  torch::jit::ProfilingRecord::removeProfileCounter(typed->block());
  torch::jit::RemoveProfileNodesAndSpecializeTypes(typed);
  torch::jit::ProfilingRecord::removeProfilingNodes(typed->block());
  auto converted = convert(*typed);
  return converted ? std::move(*converted) : nullptr;
}

std::unique_ptr<Graph> propagated_types(torch::jit::Graph& graph, const std::vector<c10::IValue>& arguments) {
  ScriptGraph typed = graph.copy();
  std::set<std::string> assigned;
  find_assigned(*typed->block(), assigned);
  for (size_t i = 0; i < arguments.size(); ++i) {
    give_type(*typed->inputs()[i], arguments[i], assigned);
  }
  torch::jit::PropagateInputShapes(typed);
  auto converted = convert(*typed);
  return converted ? std::move(*converted) : nullptr;
}

}  // namespace

std::optional<FactsOfLibtorch> facts_of_libtorch(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                                                 uint64_t seed) {
  const ScriptGraph inlined = method.graph()->copy();
  torch::jit::Inline(*inlined);
  auto converted = convert(*inlined);
  if (!converted) {
    return std::nullopt;
  }
  auto compiled = compile_profiled(std::shared_ptr<const Graph>(std::move(*converted)));
  if (!compiled) {
    return std::nullopt;
  }
  torch::jit::Stack stack = stack_of(arguments);
  at::manual_seed(seed);
  run_plan(*compiled->plan, stack, AutogradUse::kAll);
  const std::unique_ptr<Graph> seen = compiled->profile->annotated_graph();
  const auto profiled = profiled_types(*inlined, arguments, seed);
  const auto propagated = propagated_types(*inlined, arguments);
  // Where a pass took nodes out, values cannot be found again.
  const size_t count = values_in_order(*seen).size();
  if (profiled == nullptr || propagated == nullptr || values_in_order(*profiled).size() != count ||
      values_in_order(*propagated).size() != count) {
    return std::nullopt;
  }
  return FactsOfLibtorch{compare_facts(*profiled, *seen, *seen).coverage, compare_facts(*propagated, *seen, *seen).coverage};
}

}  // namespace sconce::testing
