// Graph → plan: the order of everything.
#pragma once

#include "ir/graph.h"
#include "ir/refusal.h"
#include "passes/pass_runner.h"
#include "plan/callees.h"
#include "plan/plan.h"
#include "plan/profile.h"

#include <sconce/explanation.h>

#include <memory>
#include <vector>

namespace sconce {

struct Compiled {
  std::unique_ptr<Plan> plan;
  std::vector<PassTiming> passes;
  double seconds = 0;
};

// Tier 0: what must happen before a graph can run, and nothing else. Serves every argument spec.
// `graph`: calls inlined as far as they can be; it is left alone. `callees` answers the others, and outlives the plan.
OrRefusal<Compiled> compile_required(const Graph& graph, Callees* callees = nullptr);

// A plan of a graph that the required passes have run on, each run of which fills a profile.
struct Profiled {
  std::unique_ptr<Profile> profile;  // outlives the plan
  std::unique_ptr<Plan> plan;
};
OrRefusal<Profiled> compile_profiled(const std::shared_ptr<const Graph>& graph, Callees* callees = nullptr);

// The required passes alone, for those who want to see the graph.
std::vector<PassTiming> run_required_passes(Graph& graph);

// Propagation and the optimisation after which the graph can still be differentiated. For graphs that the required passes
// have run on.
void run_optimising_passes(Graph& graph, PassRunner& runner);

}  // namespace sconce
