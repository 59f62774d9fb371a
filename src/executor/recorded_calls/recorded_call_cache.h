// RecordedCallCache: recordings of calls that require gradients, for one method.
#pragma once

#include "base/patience.h"
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
#include <unordered_set>
#include <vector>

namespace sconce {

using DestroyedModules = std::unordered_set<const c10::ivalue::Object*>;

// Once a call with the same key has been recorded, a call that requires gradients runs as one autograd node. The recording
// contains forward and backward, both below autograd. Thread-safe.
class RecordedCallCache {
 public:
  // `graph`: of the method; outlives this.
  RecordedCallCache(const Graph& graph, RecordedMethod method, const Options& options);

  // Returns whether calls are recorded: not before there is a specialized plan for calls that require gradients. With
  // CompileMode::kBlocking, whose programs want the same plans in each run, they are recorded only if that plan leaves
  // operators to autograd.
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  // Notes the specialized plan. Without an explanation, it leaves all operators to autograd.
  void note_plan(const std::optional<GradientExplanation>& gradients);

  // Runs a call that requires gradients by a recording, or records it. The stack has the module and the arguments (`inputs`
  // in all), which the result replaces. Returns false, and changes nothing, if the method's own plans are to run the call.
  bool run(torch::jit::Stack& stack, size_t inputs, RecordedCall::RunMethod run_method);

  Explanation::Recorded explain() const;
  void wait_for_compiles() const { table_.wait_for_compiles(); }
  void clear();
  // Drops the recordings of these modules, which were destroyed.
  void drop_recordings_of(const DestroyedModules& modules);

 private:
  // Runs a call by its recording. Returns false if the recording has no plan, or has lost its race.
  bool run_by_plan(const std::shared_ptr<RecordedCall>& recording, const std::vector<int64_t>& symbols,
                   const CallArguments& arguments, torch::jit::Stack& stack, RecordedCall::RunMethod run_method);
  // Runs the method, then rehearses the call to record it. Returns null if a later call is to be recorded instead.
  std::shared_ptr<RecordedCall> run_and_record(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                               const CallArguments& arguments, const SizePattern& pattern,
                                               torch::jit::Stack& stack, RecordedCall::RunMethod run_method);
  bool may_write();
  // Ends the turn that this thread's last call had in a race, and notes its time.
  void end_turn();
  // Notes whether the recording of a call has lost its race.
  void note_loser(bool has_lost);
  // Returns whether to skip the look-up of a call, because the recordings of the last calls have lost their races.
  bool rests_from_losers();

  const Graph& graph_;
  const RecordedMethod method_;
  std::atomic<bool> is_on_{false};
  std::atomic<bool> is_recording_{false};
  std::atomic<bool> is_given_up_{false};
  // The last call, if it was a turn of a race.
  struct Turn {
    std::weak_ptr<RecordedCall> recording;
    PlanRace::Side side;
    std::chrono::steady_clock::time_point start;
    std::thread::id thread;
  };
  std::atomic<bool> is_in_turn_{false};
  std::atomic<bool> meets_losers_{false};
  std::mutex mutex_;  // guards what follows
  std::optional<Turn> turn_;
  Patience patience_{{.losses = 64}};           // with calls that are refused, until one is not
  Patience losers_{{.losses = 8, .rest = 64}};  // with recordings that have lost, until one has not
  const Options options_;
  const bool is_recordable_;
  std::once_flag is_analyzed_;
  bool may_write_ = false;  // attributes or arguments; after the analysis
  RecordingCache table_;
};

}  // namespace sconce
