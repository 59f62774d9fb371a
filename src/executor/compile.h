// Graph → plan: the order of everything.
#pragma once

#include "ir/graph.h"
#include "ir/refusal.h"
#include "plan/plan.h"

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
// `graph`: calls inlined; it is left alone.
OrRefusal<Compiled> compile_required(const Graph& graph);

// The required passes alone, for those who want to see the graph.
std::vector<PassTiming> run_required_passes(Graph& graph);

}  // namespace sconce
