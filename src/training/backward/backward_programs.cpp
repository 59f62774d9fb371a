#include "training/backward/backward_programs.h"

#include "trace/tracing_conditions.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

using torch::autograd::GraphTask;
using AutogradNode = torch::autograd::Node;
using torch::autograd::variable_list;

// The key of a backward has all that its recording assumes.
bool holds(Recording& /*recorded*/) { return true; }

}  // namespace

struct BackwardPrograms::Recorded final : Recording {
  BackwardProgram program;
  std::vector<std::shared_ptr<CompiledTrace>> plans;  // of the program's stages

  bool is_ready() const override {
    return std::all_of(plans.begin(), plans.end(), [](const auto& plan) { return plan->is_ready(); });
  }
  // Requires that `is_ready` was false. Another thread may have made the plan since then.
  std::string why_no_plan() const {
    const auto found = std::find_if(plans.begin(), plans.end(), [](const auto& plan) { return !plan->is_ready(); });
    return found == plans.end() ? "its plan is being compiled" : (*found)->why_no_plan();
  }
  void explain(std::vector<Explanation>& explained) const {
    for (const auto& plan : plans) {
      explained.push_back(plan->explain());
    }
  }
  void wait_for_compile() const override {
    for (const auto& plan : plans) {
      plan->wait_for_compile();
    }
  }
};

BackwardPrograms::Backward BackwardPrograms::take(const std::shared_ptr<AutogradNode>& root, const GraphTask& task,
                                                  bool creates_graph) {
  if (creates_graph) {
    return leave_to_engine("create_graph is on");
  }
  const c10::AutoGradMode no_graph(false);  // all that the engine changes of the thread's state for a node
  if (c10::InferenceMode::is_enabled()) {
    return leave_to_engine("inference mode is on");
  }
  if (const char* reason = why_not_now({})) {
    return leave_to_engine(reason);
  }
  const auto walk = std::make_shared<BackwardSchedule>(root, task);
  if (!walk->why_not().empty()) {
    return leave_to_engine(walk->why_not());
  }
  const RecordingKey key{walk->structure(), walk->sizes()};
  RecordingCache::Found found = table_.find(key, holds);
  if (found.recording != nullptr && !found.recording->refusal.empty()) {
    return leave_to_engine(found.recording->refusal);
  }
  if (found.recording != nullptr && !found.recording->is_ready()) {
    return leave_to_engine(static_cast<const Recorded&>(*found.recording).why_no_plan());
  }
  const size_t results = task.captured_vars_.size();
  const bool keeps_graph = task.keep_graph_;
  if (found.recording != nullptr) {
    const bool calls_other_code = walk->has_nodes_on_host();
    auto run = [this, walk, found = std::move(found), results, keeps_graph] {
      table_.count_run(*found.recording);
      const BackwardProgram& program = static_cast<const Recorded&>(*found.recording).program;
      return sconce::run(program, *walk, found.symbols, results, keeps_graph);
    };
    return {std::move(run), calls_other_code};
  }
  const RecordingCache::Decision decision = table_.decide(key);
  if (!decision.pattern) {
    return leave_to_engine(decision.why_not);
  }
  auto run = [this, walk, pattern = *decision.pattern, results, keeps_graph] {
    table_.count_recorded();
    variable_list gradients(results);
    const std::shared_ptr<Recorded> made = record(*walk, pattern, keeps_graph, gradients);
    table_.insert({walk->structure(), walk->sizes()}, made, holds);
    return gradients;
  };
  return {std::move(run)};
}

std::shared_ptr<BackwardPrograms::Recorded> BackwardPrograms::record(BackwardSchedule& walk, const SizePattern& pattern,
                                                                     bool keeps_graph, variable_list& results) const {
  auto made = std::make_shared<Recorded>();
  made->pattern = pattern;
  const auto compile = [&](std::unique_ptr<Graph> graph, const TraceSizes& sizes) -> std::shared_ptr<Program> {
    made->plans.push_back(CompiledTrace::make(std::move(graph), "backward", options_, {.sizes = sizes}));
    return made->plans.back();
  };
  TracedBackward recorded = record_backward(walk, pattern, results.size(), keeps_graph, compile);
  results = std::move(recorded.results);
  if (recorded.refusal) {
    made->refusal = recorded.refusal->reason;
    made->plans.clear();
  } else {
    made->program = std::move(recorded.program);
    made->guards = made->program.symbols;
    made->why_sizes_are_fixed = made->guards != nullptr ? made->program.symbols->why_pinned() : "";
  }
  return made;
}

// The walk has changed nothing, so the engine can begin.
BackwardPrograms::Backward BackwardPrograms::leave_to_engine(const std::string& reason) {
  table_.count_eager(reason);
  return {};
}

BackwardExplanation BackwardPrograms::explain() const {
  const ServedCalls served = table_.served();
  BackwardExplanation explanation;
  explanation.by_plan = served.by_plan;
  explanation.recorded = served.recorded;
  explanation.by_engine = served.eager;
  explanation.reasons = served.reasons;
  explanation.why_sizes_are_fixed = table_.why_sizes_are_fixed();
  for (const auto& recorded : table_.recordings()) {
    static_cast<const Recorded&>(*recorded).explain(explanation.plans);
  }
  return explanation;
}

}  // namespace sconce
