// OperatorGraph: the operators of a recorded graph, to be run with autograd.
#pragma once

#include "ir/graph.h"
#include "plan/plan.h"
#include "trace/sizes/size_pattern.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

namespace sconce {

// Thread-safe.
class OperatorGraph {
 public:
  // `name`: of the call that the graph is of.
  OperatorGraph(std::shared_ptr<const Graph> graph, std::string name) : graph_(std::move(graph)), name_(std::move(name)) {}
  // The stack has the graph's inputs on top, which the outputs replace. Where a trace leaves sizes open, the symbols may be
  // c10::SymInt.
  void run(torch::jit::Stack& stack) const;
  const Graph& graph() const { return *graph_; }

 private:
  const std::shared_ptr<const Graph> graph_;
  const std::string name_;
  mutable std::once_flag is_lowered_;
  mutable std::unique_ptr<Plan> plan_;
  mutable std::once_flag is_lowered_open_;
  mutable std::unique_ptr<Plan> symbolic_plan_;
};

// Returns the symbols of a call with these arguments, as c10::SymInt if a trace with symbolic sizes runs.
torch::jit::Stack symbols_of(const SizePattern& pattern, std::span<const at::Tensor> arguments);

}  // namespace sconce
