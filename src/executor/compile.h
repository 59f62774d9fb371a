// Graph → plan: the order of everything.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "load/function_table.h"
#include "pipeline/pass_runner.h"
#include "plan/callees.h"
#include "plan/plan.h"
#include "plan/profile.h"

#include <sconce/explanation.h>

#include <memory>
#include <vector>

namespace sconce {

class ModuleConstants;

struct Compiled {
  std::unique_ptr<Plan> plan;
  std::vector<PassTiming> passes;
  std::vector<RefusalExplanation> refusals;  // of passes that failed and were left out
  double seconds = 0;
};

struct CompileSettings {
  Callees* callees = nullptr;            // answers calls that are not inlined; outlives the plan
  const PassPipeline* passes = nullptr;  // the user's passes, and which are disabled
  bool optimize = false;                 // else the required passes alone
  bool frozen = false;  // of a frozen module, whose constants may be computed with, at the price of rounding
};

// Inlines all calls that can be (passes/inline_calls.h); to `optimize`, what several calls share is simplified once. Gives
// the time it took.
Expected<PassTiming> inline_and_simplify(Graph& graph, FunctionTable& functions, const PassPipeline& passes, bool optimize);

// Freezes a method (passes/freeze.h) and, to `optimize`, does what its constants decide: once for all plans of the method,
// so that they share what is computed, and before argument specs are made of what it still reads.
void freeze_method(Graph& method, const ModuleConstants& constants, bool optimize, PassRunner& runner);

// Tier 0: a plan that serves every argument spec, quick to build. `graph`: calls inlined as far as they can be; it is left
// alone.
Expected<Compiled> compile_unspecialized(const Graph& graph, const CompileSettings& settings = {});

// A plan of a graph that the passes have run on, each run of which fills a profile.
struct Profiled {
  std::unique_ptr<Profile> profile;  // outlives the plan
  std::unique_ptr<Plan> plan;
};
Expected<Profiled> compile_profiled(const std::shared_ptr<const Graph>& graph, Callees* callees = nullptr);

// The passes of a stage in their order, the user's at their places.
void run_stage(Stage stage, std::unique_ptr<Graph>& graph, PassRunner& runner, bool frozen = false);

}  // namespace sconce
