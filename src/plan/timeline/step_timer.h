// StepTimer: the times of all steps that run, on all threads.
#pragma once

#include "plan/plan.h"
#include "plan/timeline/step_work.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace sconce {

// A step that ran, or a whole run of a plan.
struct StepEvent {
  static constexpr uint32_t kWholeRun = UINT32_MAX;
  uint32_t plan;      // index in StepTimer::plans
  uint32_t position;  // of the step, or kWholeRun
  uint32_t depth;     // the number of events around it
  bool is_prepared = false;
  int64_t begin;  // nanoseconds since the timer was made
  int64_t end = 0;
};

// The description of a plan that outlives it. Nodes belong to the graph.
struct TimedPlan {
  struct Step {
    const Node* node;
    const Node* loop;
    std::string word;    // of a step that is not one operator: "move", "jump", "loop", "kernel add mul"
    const Node* kernel;  // the kernel node of which the step runs the block; null for other steps
  };
  std::string name;
  std::shared_ptr<const Graph> graph;
  std::vector<Step> steps;
  // Of its first recorded run:
  std::vector<GivenInput> inputs;
  std::unordered_map<const Value*, TensorFacts> computed;
};

struct ThreadEvents {
  int64_t thread;               // the system's number
  std::deque<StepEvent> steps;  // in the order in which they began
  uint64_t dropped = 0;
  uint32_t depth = 0;
};

// The process has at most one active timer, which is told of every run that begins. A run without a timer reads one
// flag.
class StepTimer {
 public:
  // Begins to record. Throws c10::Error if there is an active timer. `max_steps`: by thread; later ones are dropped.
  explicit StepTimer(size_t max_steps);
  ~StepTimer() { stop(); }

  static bool is_active() { return is_active_.load(std::memory_order_relaxed); }
  // Returns whether an event was dropped.
  bool is_full() const { return is_full_.load(std::memory_order_relaxed); }
  // Waits for the runs that are recorded. May be called again.
  void stop();

  // ---- after `stop`
  const std::deque<TimedPlan>& plans() const { return plans_; }
  const std::deque<ThreadEvents>& threads() const { return threads_; }

 private:
  friend class TimedRun;
  int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_).count();
  }
  // The description of the plan, and whether this run is its first.
  std::pair<uint32_t, bool> index_of(const Plan& plan, Frame& frame);
  ThreadEvents& events_of_this_thread();

  static std::atomic<bool> is_active_;
  const size_t max_steps_;
  std::atomic<bool> is_full_{false};
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  size_t runs_ = 0;  // that are recorded now
  std::condition_variable last_run_ended_;
  std::deque<TimedPlan> plans_;
  std::unordered_map<uint64_t, uint32_t> indices_;  // of plans, by id
  std::deque<ThreadEvents> threads_;
  std::map<int64_t, ThreadEvents*> by_thread_;
};

// Records one run, and its steps in slices (run_plan.cpp).
class TimedRun {
 public:
  TimedRun(const Plan& plan, Frame& frame);
  ~TimedRun();
  TimedRun(const TimedRun&) = delete;
  TimedRun& operator=(const TimedRun&) = delete;

  class Slice {
   public:
    Slice(TimedRun& run, size_t position) : run_(run), event_(run.begin(static_cast<uint32_t>(position))) {}
    ~Slice() { run_.end(event_); }
    Slice(const Slice&) = delete;
    Slice& operator=(const Slice&) = delete;
    void finish(const Step& step, Frame& frame) {
      if (event_ != nullptr) {
        event_->end = run_.timer_->now();
        event_->is_prepared = step.ran_prepared(frame);
        run_.note_results(*event_, frame);
      }
    }

   private:
    TimedRun& run_;
    StepEvent* const event_;
  };

 private:
  // Returns null if the event is dropped.
  StepEvent* begin(uint32_t position);
  void end(StepEvent* event);
  void note_results(const StepEvent& event, Frame& frame);

  const Plan& of_;
  StepTimer* timer_;  // null if recording stopped before the run began
  ThreadEvents* events_ = nullptr;
  uint32_t plan_ = 0;
  TimedPlan* noted_ = nullptr;  // the description of the plan, in its first run
  StepEvent* whole_ = nullptr;
};

}  // namespace sconce
