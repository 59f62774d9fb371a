// The implementation of sconce::GraphExecutor: a program that runs for any arguments, the module among them.
#pragma once

#include "executor/argument_spec/argument_spec.h"
#include "executor/callee_table.h"
#include "executor/compile.h"
#include "executor/live_programs.h"
#include "executor/plan_cache/plan_cache.h"
#include "executor/plan_cache/striped_counter.h"
#include "executor/recorded_calls/recorded_call_cache.h"
#include "executor/specialization.h"

#include <sconce/graph_executor.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sconce {

// It keeps nothing of a module but what depends on the module alone (recorded calls) or is a constant of a frozen one: the
// modules of one class may share it.
class GraphExecutor::Impl final : public Program {
 public:
  // The first argument of a method is its module. Calls of methods with gradients may be recorded.
  enum class Kind { kMethod, kGraph };
  Impl(CompiledMethod compiled, std::string name, const Options& options, std::shared_ptr<CalleeTable> callees, Kind kind);
  // Compiles a graph whose calls are not inlined.
  Impl(std::unique_ptr<Graph> graph, std::string name, const Options& options, std::shared_ptr<CalleeTable> callees,
       Kind kind);
  // Makes the executor of a program that `owner` owns.
  Impl(CompiledMethod compiled, std::string name, const Options& options, CalleeTable& owner);

  // The stack has all inputs of the graph.
  void run(torch::jit::Stack& stack) override;

  const std::string& name() const { return name_; }
  const Graph& graph() const { return *graph_; }
  uint64_t calls() const { return invocations_.value(); }  // since the last `clear_cache`
  // What `explain` counts, without the refusals of callees. Takes a lock to count those of plans.
  Counters counters() const;
  // Lists the program in `status()`. Called once.
  void list_as(std::string name) { entry_.emplace(std::move(name), *this); }
  // `self`: the module whose weights the explanation counts; null for a graph without one.
  Explanation explain(const c10::IValue* self = nullptr) const;
  void clear_cache();
  void wait_for_compiles() const;
  // Drops the recorded calls of these modules, which were destroyed.
  void forget(const DestroyedModules& modules);
  // Drops what steps keep from run to run, such as packed weights.
  void drop_frames();

 private:
  using SpecEntry = std::shared_ptr<Specialization>;  // shared with the compile of its plan

  Impl(CompiledMethod compiled, std::string name, const Options& options, CalleeTable& callees,
       std::shared_ptr<CalleeTable> owned_callees, Kind kind);

  bool takes_profiled_run();
  void note_run(const Plan& plan) const;
  using Arguments = std::span<const c10::IValue>;
  const Plan& symbolic_plan();
  // `recorded`: null if the call is not to be recorded.
  void run(torch::jit::Stack& stack, RecordedCallCache* recorded);
  void run_by_plans(torch::jit::Stack& stack) { run(stack, nullptr); }
  // `recorded`: is told of the plan; null for a call that is not to be recorded.
  FrameLease take_frame(const ArgumentSpec* spec, Arguments arguments, RecordedCallCache* recorded);
  // `recorded`: the recorded calls of the method, if the call is one that may be.
  const CountedPlan& plan_for(const ArgumentSpec& spec, Arguments arguments, const PlanCache<SpecEntry>::Guard& guard,
                              RecordedCallCache* recorded);
  void specialize(const SpecEntry& entry, const ArgumentSpec& spec, Arguments arguments);
  const char* why_not_specialized(const ArgumentSpec& spec) const;
  PlanExplanation explain_plan(const CountedPlan& plan, std::vector<std::string> specs) const;

  CalleeTable& callees_;                              // outlives the plans
  const std::shared_ptr<CalleeTable> owned_callees_;  // the same; null for a program that the table owns
  std::unique_ptr<Graph> graph_;
  std::string name_;
  Options options_;
  const std::shared_ptr<const ArgumentSpecCreator> specs_;
  std::vector<PassTiming> passes_;
  std::vector<RefusalExplanation> refusals_;
  std::unique_ptr<CountedPlan> generic_;         // serves every spec
  std::unique_ptr<RecordedCallCache> recorded_;  // null if none is recorded
  // A method that can be recorded but for a first part.
  struct CallInParts {
    std::unique_ptr<Impl> first;
    std::unique_ptr<Impl> rest;
    bool rest_runs_backward;
    // Gradients that `rest` computes flow through what `first` has computed: no recording of `rest` holds them.
    std::atomic<bool> is_given_up{false};
  };
  // Returns null for a method that is run as a whole.
  CallInParts* parts_of_call();
  void run_in_parts(CallInParts& parts, torch::jit::Stack& stack);
  std::once_flag is_split_;
  std::unique_ptr<CallInParts> parts_;
  std::atomic<CallInParts*> split_{nullptr};  // the same, once there are parts
  const bool marks_tensors_;                  // so that a call may record gradients although no argument requires one
  std::once_flag has_symbolic_sizes_;
  std::unique_ptr<Plan> symbolic_plan_;  // runs while a tracer with symbols records; null before the first such run
  const std::shared_ptr<SpecializationSource> source_;
  mutable PlanCache<SpecEntry> cache_;
  // The number of profiled runs that have begun, up to the number requested.
  std::optional<Profiled> profiled_;
  std::atomic<size_t> profiled_runs_{0};

  StripedCounter invocations_;
  StripedCounter hits_;
  StripedCounter misses_;
  StripedCounter evictions_;
  std::optional<LivePrograms::Entry> entry_;  // reads the counters when it is destroyed
};

}  // namespace sconce
