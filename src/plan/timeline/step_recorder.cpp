#include "plan/timeline/step_recorder.h"

#include "plan/prepared/prepared_step.h"

#include <c10/util/Exception.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace sconce {
namespace {

// Protects the active recorder and what it knows of plans, threads and runs.
std::mutex recorder_mutex;
StepRecorder* active_recorder = nullptr;

// Returns what the step does, if it is not the one operator of its node: "kernel add mul", "move", "jump".
std::string word_of(const Plan::PlannedStep& step) {
  if (const auto* group = dynamic_cast<const GroupStep*>(step.step.get())) {
    return group->name();
  }
  if (step.node != nullptr && step.node->blocks().empty()) {
    return "";
  }
  const std::string text = step.step->describe();
  return text.substr(0, text.find(' '));
}

RecordedPlan record_of(const Plan& plan) {
  RecordedPlan recorded{plan.name(), plan.graph(), {}};
  for (const Plan::PlannedStep& step : plan.steps()) {
    recorded.steps.push_back({step.node, step.loop, word_of(step)});
  }
  return recorded;
}

}  // namespace

std::atomic<bool> StepRecorder::is_active_{false};

StepRecorder::StepRecorder(size_t max_steps) : max_steps_(max_steps) {
  const std::lock_guard<std::mutex> lock(recorder_mutex);
  TORCH_CHECK(active_recorder == nullptr, "steps are being recorded already: a process has one StepTrace at a time");
  active_recorder = this;
  is_active_.store(true, std::memory_order_relaxed);
}

void StepRecorder::stop() {
  std::unique_lock<std::mutex> lock(recorder_mutex);
  if (active_recorder == this) {
    active_recorder = nullptr;
    is_active_.store(false, std::memory_order_relaxed);
  }
  last_run_ended_.wait(lock, [this] { return runs_ == 0; });
}

uint32_t StepRecorder::index_of(const Plan& plan) {
  const auto [found, is_new] = indices_.try_emplace(plan.id(), static_cast<uint32_t>(plans_.size()));
  if (is_new) {
    plans_.push_back(record_of(plan));
  }
  return found->second;
}

ThreadEvents& StepRecorder::events_of_this_thread() {
  const int64_t thread = ::syscall(SYS_gettid);
  ThreadEvents*& events = by_thread_[thread];
  if (events == nullptr) {
    events = &threads_.emplace_back(ThreadEvents{thread, {}});
  }
  return *events;
}

// ---- RecordedRun ----------------------------------------------------------------------------------------------------

RecordedRun::RecordedRun(const Plan& plan) {
  {
    const std::lock_guard<std::mutex> lock(recorder_mutex);
    recorder_ = active_recorder;
    if (recorder_ == nullptr) {
      return;
    }
    plan_ = recorder_->index_of(plan);
    events_ = &recorder_->events_of_this_thread();
    ++recorder_->runs_;
  }
  whole_ = begin(StepEvent::kWholeRun);
}

RecordedRun::~RecordedRun() {
  if (recorder_ == nullptr) {
    return;
  }
  end(whole_);
  const std::lock_guard<std::mutex> lock(recorder_mutex);
  --recorder_->runs_;
  recorder_->last_run_ended_.notify_all();
}

StepEvent* RecordedRun::begin(uint32_t position) {
  if (recorder_ == nullptr) {
    return nullptr;
  }
  const uint32_t depth = events_->depth++;
  if (events_->steps.size() >= recorder_->max_steps_) {
    ++events_->dropped;
    recorder_->is_full_.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  StepEvent& event = events_->steps.emplace_back(StepEvent{.plan = plan_, .position = position, .depth = depth, .begin = 0});
  event.begin = recorder_->now();
  return &event;
}

void RecordedRun::end(StepEvent* event) {
  if (recorder_ == nullptr) {
    return;
  }
  --events_->depth;
  if (event != nullptr) {
    event->end = recorder_->now();
  }
}

}  // namespace sconce
