#include "training/backward/backward_programs.h"

#include "trace/recording_conditions.h"
#include "training/backward/engine.h"

#include <ATen/ThreadLocalState.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace sconce {
namespace {

using torch::autograd::GraphTask;
using AutogradNode = torch::autograd::Node;
using torch::autograd::variable_list;

// A graph that a compiler of the user's has compiled.
class CompiledByUser final : public Program {
 public:
  explicit CompiledByUser(BackwardCache::Compiled compiled) : compiled_(std::move(compiled)) {}
  void run(torch::jit::Stack& stack) override { compiled_(stack); }

 private:
  const BackwardCache::Compiled compiled_;
};

// Calls what hooks have queued, which may queue more.
void run_final_callbacks(GraphTask& task) {
  std::unique_lock<std::mutex> lock(task.final_callbacks_lock_);
  for (size_t i = 0; i < task.final_callbacks_.size(); ++i) {
    const std::function<void()> callback = task.final_callbacks_[i];
    lock.unlock();
    callback();
    lock.lock();
  }
}

// Returns why the entry is of one size in spite of its pattern; empty if it is not.
std::string why_pinned(const SizePattern& pattern, const BackwardProgram& program) {
  for (size_t i = 0; i < pattern.values().size(); ++i) {
    if (program.symbols->is_pinned(i)) {
      return "code reads a size as a plain number, which is " + std::to_string(pattern.values()[i]);
    }
  }
  return {};
}

// What a recording of a backward assumes is all in its key.
bool holds(PlanEntry& /*recorded*/) { return true; }

}  // namespace

struct BackwardPrograms::Backward final : PlanEntry {
  BackwardProgram program;
  std::vector<std::shared_ptr<CapturedGraph>> plans;  // of the program's stages; none with a compiler of the user's

  bool is_ready() const override {
    return std::all_of(plans.begin(), plans.end(), [](const auto& plan) { return plan->is_ready(); });
  }
  std::string why_no_plan() const override {
    const auto found = std::find_if(plans.begin(), plans.end(), [](const auto& plan) { return !plan->is_ready(); });
    return found == plans.end() ? "its plan is being compiled" : (*found)->why_no_plan();
  }
  void explain(std::vector<Explanation>& explained) const override {
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

variable_list BackwardPrograms::run(const std::shared_ptr<AutogradNode>& root, const GraphTask& task,
                                    const torch::autograd::edge_list& outputs) {
  // What the engine sets for each node.
  const at::ThreadLocalStateGuard state(task.thread_locals_);
  if (c10::GradMode::is_enabled()) {
    return run_by_engine(root, task, "create_graph is on");
  }
  if (const char* reason = why_not_now({})) {
    return run_by_engine(root, task, reason);
  }
  BackwardWalk walk(root, task);
  if (!walk.why_not().empty()) {
    return run_by_engine(root, task, walk.why_not());
  }
  const PlanKey key{walk.structure(), walk.sizes()};
  const PlanTable::Found found = table_.find(key, holds);
  if (found.plan != nullptr && !found.plan->refusal.empty()) {
    return run_by_engine(root, task, found.plan->refusal);
  }
  if (found.plan != nullptr && !found.plan->is_ready()) {
    return run_by_engine(root, task, found.plan->why_no_plan());
  }
  variable_list results(outputs.size());
  if (found.plan != nullptr) {
    table_.count_run(*found.plan);
    const BackwardProgram& program = static_cast<const Backward&>(*found.plan).program;
    results = sconce::run(program, walk, found.symbols, outputs.size(), task.keep_graph_);
  } else {
    const PlanTable::Decision decision = table_.decide(key);
    if (!decision.pattern) {
      return run_by_engine(root, task, decision.why_not);
    }
    table_.count_recorded();
    table_.insert(key, record(walk, *decision.pattern, task.keep_graph_, results), holds);
  }
  run_final_callbacks(const_cast<GraphTask&>(task));
  return results;
}

std::shared_ptr<BackwardPrograms::Backward> BackwardPrograms::record(BackwardWalk& walk, const SizePattern& pattern,
                                                                     bool keeps_graph, variable_list& results) const {
  auto made = std::make_shared<Backward>();
  made->pattern = pattern;
  const auto compile = [&](std::unique_ptr<Graph> graph, const CapturedSizes& sizes) -> std::shared_ptr<Program> {
    if (compiler_ == nullptr) {
      made->plans.push_back(CapturedGraph::make(std::move(graph), "backward", options_, sizes));
      return made->plans.back();
    }
    Compiled compiled = compiler_(std::move(graph));
    TORCH_CHECK(compiled != nullptr, "the compiler of backward returned nothing");
    return std::make_shared<CompiledByUser>(std::move(compiled));
  };
  RecordedBackward recorded = record_backward(walk, pattern, results.size(), keeps_graph, compile);
  results = std::move(recorded.results);
  if (recorded.refusal) {
    made->refusal = recorded.refusal->reason;
    made->plans.clear();
  } else {
    made->program = std::move(recorded.program);
    made->guards = made->program.symbols;
    made->why_sizes_are_fixed = why_pinned(pattern, made->program);
  }
  return made;
}

// The walk has changed nothing, so the engine can begin.
variable_list BackwardPrograms::run_by_engine(const std::shared_ptr<AutogradNode>& root, const GraphTask& task,
                                              const std::string& reason) {
  table_.count_eager(reason);
  return run_backward_by_engine(root, task);
}

BackwardExplanation BackwardPrograms::explain() const {
  const ServedCalls served = table_.served();
  BackwardExplanation explanation;
  explanation.by_plan = served.by_plan;
  explanation.recorded = served.recorded;
  explanation.by_engine = served.eager;
  explanation.reasons = served.reasons;
  explanation.why_sizes_are_fixed = table_.why_sizes_are_fixed();
  for (const auto& recorded : table_.plans()) {
    recorded->explain(explanation.plans);
  }
  return explanation;
}

}  // namespace sconce
