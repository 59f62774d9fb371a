#include "executor/compiled_trace.h"

#include "base/assert.h"
#include "base/compile_queue.h"
#include "base/exception_message.h"
#include "ir/dump.h"
#include "load/function_library.h"
#include "lower/explain_plan.h"
#include "plan/intra_op_threads.h"
#include "plan/run_plan.h"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>

#include <exception>
#include <utility>

namespace sconce {

std::shared_ptr<CompiledTrace> CompiledTrace::make(std::unique_ptr<Graph> graph, std::string name, const Options& options,
                                                   TraceSettings settings) {
  const std::shared_ptr<CompiledTrace> made(
      new CompiledTrace(std::move(graph), std::move(name), options, std::move(settings)));
  bool is_submitted = false;
  if (options.compile() != CompileMode::kBlocking) {
    start_frontend();
    is_submitted = CompileQueue::of_process().submit([weak = std::weak_ptr(made)] {
      use_one_intra_op_thread();
      if (const std::shared_ptr<CompiledTrace> captured = weak.lock()) {
        captured->compile();
      }
    });
  }
  if (!is_submitted) {
    made->compile();
  }
  return made;
}

CompiledTrace::CompiledTrace(std::unique_ptr<Graph> graph, std::string name, const Options& options, TraceSettings settings)
    : name_(std::move(name)),
      options_(options),
      nodes_(graph->node_count()),
      callees_(CalleeTable::make(options)),
      graph_(std::move(graph)),
      settings_(std::move(settings)) {}
CompiledTrace::~CompiledTrace() = default;

void CompiledTrace::run(torch::jit::Stack& stack) {
  const Plan* plan = plan_.load(std::memory_order_acquire);
  SCONCE_ASSERT(plan != nullptr, name_, " has no plan");
  const at::NoGradGuard no_grad;
  runs_.add();
  run_plan(*plan, stack, AutogradUse::kNone);
}

std::string CompiledTrace::why_no_plan() const {
  if (!is_refused_.load(std::memory_order_acquire)) {
    return "its plan is being compiled";
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return "it has no plan: " + (compiled_.refusals.empty() ? "out of memory" : compiled_.refusals.back().reason);
}

void CompiledTrace::compile() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Others ask for the reason after this.
  struct Ending {
    CompiledTrace& graph;
    ~Ending() { graph.is_refused_.store(!graph.is_ready(), std::memory_order_release); }
  } const ending{*this};
  try {
    const at::DisableRecordFunctionGuard not_observed;
    const c10::InferenceMode normal(false);
    const at::NoGradGuard no_grad;
    CompileSettings settings(options_);
    settings.name = name_;
    settings.limits.packs_weights = false;  // steps of training change weights
    settings.callees = callees_.get();
    auto compiled = compile_trace(std::move(graph_), std::exchange(settings_, {}), settings);
    if (!compiled) {
      compiled_.refusals.push_back({name_, compiled.refusal().reason, compiled.refusal().node, compiled.refusal().source});
      return;
    }
    compiled_ = std::move(*compiled);
    dump(DumpPoint::kPlan, name_, [this] { return compiled_.plan->text(); });
    plan_.store(compiled_.plan.get(), std::memory_order_release);
  } catch (const std::bad_alloc&) {
    return;  // there is no plan, and no memory to say so
  } catch (...) {
    // Also what is no std::exception: nothing could handle it on the background thread.
    RefusalExplanation& refusal = compiled_.refusals.emplace_back();
    refusal.what = name_;
    refusal.reason = "the compile failed: " + joined_lines(message_of(std::current_exception()));
  }
}

Explanation CompiledTrace::explain() const {
  Explanation explanation;
  explanation.method = name_;
  explanation.nodes = nodes_;
  const std::lock_guard<std::mutex> lock(mutex_);
  explanation.refusals = compiled_.refusals;
  if (compiled_.plan != nullptr) {
    PlanExplanation plan;
    plan.tier = Tier::kRanks;
    plan.runs = runs_.value();
    plan.compile_seconds = compiled_.seconds;
    plan.passes = compiled_.passes;
    explain_plan(*compiled_.plan, plan);
    explanation.plans.push_back(std::move(plan));
    explanation.counters.compiles = 1;
  }
  explanation.counters.invocations = runs_.value();
  explanation.counters.refusals = explanation.refusals.size();
  return explanation;
}

// A job that waits takes the lock when it runs; one that runs has it.
void CompiledTrace::wait_for_compile() const {
  CompileQueue::of_process().run_and_wait([] {});
}

}  // namespace sconce
