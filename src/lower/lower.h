// Lowers a graph to a plan.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "plan/callees.h"
#include "plan/plan.h"
#include "plan/prepared/group.h"
#include "plan/profile.h"

#include <functional>
#include <memory>

namespace sconce {

// How nodes become steps.
struct LoweringOptions {
  bool is_prepared = false;  // operators that have kernels run by prepared steps, with their results in the arena
  KernelLimits limits = {};  // where exact, composite operators run with autograd's layers
  // Kernels keep copies of attributes and constants, not of what the caller gives, but for inputs of the graph from this one
  // on: those are the same tensors in most runs.
  size_t first_bound_input = SIZE_MAX;
  bool has_symbolic_sizes = false;  // sizes that steps read may be c10::SymInt
  IntraOpLimit thread_limit;
  // Number of leading outputs that must be new tensors in every run. Later outputs may reuse a tensor of an earlier run that
  // nothing holds (ReusedResults). If absent, no output is reused.
  std::optional<size_t> fresh_outputs = {};
  const GroupCompiler* groups = nullptr;  // makes the kernels of kernel nodes; outlives the plan
  // Optimizes backward of runs in which some gradients of outputs are undefined; null if nothing does.
  std::shared_ptr<const std::function<void(std::shared_ptr<Graph>&)>> optimize_backward = {};
};

// Lowers a graph. The plan keeps the graph alive.
//
// Requires: a verified graph.
// `callees` runs calls, and must outlive the plan; without it, calls are refused. `profile` must be a profile of this very
// graph and outlive the plan; every run fills it. Refuses node kinds and operators that cannot run, with the first such
// node.
Expected<std::unique_ptr<Plan>> lower(std::shared_ptr<const Graph> graph, Callees* callees = nullptr,
                                      Profile* profile = nullptr, LoweringOptions options = {});

}  // namespace sconce
