// RecordedCallCache: the recorded calls of one method that record gradients.
#pragma once

#include "executor/recorded_calls/recorded_call.h"

#include <sconce/explanation.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace sconce {

// A call that records gradients is one node of LibTorch's autograd if its kind came before: forward and backward were
// recorded together then, below autograd, so that no operator is left to autograd. Thread-safe.
class RecordedCallCache {
 public:
  // `graph`: of the method; outlives this.
  RecordedCallCache(const Graph& graph, RecordedMethod method, const Options& options);

  // Whether calls are recorded: not before there is a plan for calls that record gradients. Programs that wait for compiles
  // want the same plans in each run: for these, no call is recorded whose plan leaves no operator to autograd.
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  // Without an explanation, all operators are left to autograd.
  void note_plan(const std::optional<GradientExplanation>& gradients);

  // Runs a call that records gradients, if a plan serves it or it is to be recorded. The stack has the module and the
  // arguments (`inputs` in all), which the result replaces. Returns false, and changes nothing, for other calls.
  bool run(torch::jit::Stack& stack, size_t inputs, RecordedCall::RunMethod run_method);

  Explanation::Recorded explain() const;
  void wait_for_compiles() const { table_.wait_for_compiles(); }
  void clear() { table_.clear(); }

 private:
  // Runs a call for which there is a trace, if it has a plan that is to run.
  bool run_by_plan(const std::shared_ptr<RecordedCall>& trace, const std::vector<int64_t>& symbols,
                   const CallArguments& arguments, torch::jit::Stack& stack, RecordedCall::RunMethod run_method);
  // Runs the method, then records a call like it. Returns null if that is to be tried again with a later call.
  std::shared_ptr<RecordedCall> run_and_record(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                               const CallArguments& arguments, const SizePattern& pattern,
                                               torch::jit::Stack& stack, RecordedCall::RunMethod run_method);
  bool may_write();
  // Times the turn of a race that the last call of this thread was.
  void end_turn();

  const Graph& graph_;
  const RecordedMethod method_;
  std::atomic<bool> is_on_{false};
  std::atomic<bool> is_recording_{false};
  std::atomic<bool> is_given_up_{false};
  // The last call, if it was a turn of a race.
  struct Turn {
    std::weak_ptr<RecordedCall> trace;
    PlanRace::Side side;
    std::chrono::steady_clock::time_point start;
    std::thread::id thread;
  };
  std::atomic<bool> is_in_turn_{false};
  std::mutex turn_mutex_;
  std::optional<Turn> turn_;                // guarded by `turn_mutex_`
  std::atomic<uint32_t> calls_in_vain_{0};  // that found a refusal
  const Options options_;
  const bool is_recordable_;
  std::once_flag is_analyzed_;
  bool may_write_ = false;  // attributes or arguments; after the analysis
  PlanTable table_;
};

}  // namespace sconce
