#include "plan/timeline/step_timer.h"

#include "plan/prepared/prepared_step.h"

#include <c10/util/Exception.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sconce {
namespace {

// Protects the active timer and what it knows of plans, threads and runs.
std::mutex timer_mutex;
StepTimer* active_timer = nullptr;

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

TimedPlan record_of(const Plan& plan, Frame& frame) {
  TimedPlan recorded{.name = plan.name(), .graph = plan.graph(), .steps = {}, .inputs = {}, .computed = {}};
  for (const Plan::PlannedStep& step : plan.steps()) {
    const bool is_group = dynamic_cast<const GroupStep*>(step.step.get()) != nullptr;
    recorded.steps.push_back({step.node, step.loop, word_of(step), is_group ? step.node->owning_block()->owner() : nullptr});
  }
  for (const Register input : plan.inputs()) {
    recorded.inputs.push_back(given_input(frame[input]));
  }
  return recorded;
}

}  // namespace

std::atomic<bool> StepTimer::is_active_{false};

StepTimer::StepTimer(size_t max_steps) : max_steps_(max_steps) {
  const std::lock_guard<std::mutex> lock(timer_mutex);
  TORCH_CHECK(active_timer == nullptr, "steps are being recorded already: a process has one StepTrace at a time");
  active_timer = this;
  is_active_.store(true, std::memory_order_relaxed);
}

void StepTimer::stop() {
  std::unique_lock<std::mutex> lock(timer_mutex);
  if (active_timer == this) {
    active_timer = nullptr;
    is_active_.store(false, std::memory_order_relaxed);
  }
  last_run_ended_.wait(lock, [this] { return runs_ == 0; });
}

std::pair<uint32_t, bool> StepTimer::index_of(const Plan& plan, Frame& frame) {
  const auto [found, is_new] = indices_.try_emplace(plan.id(), static_cast<uint32_t>(plans_.size()));
  if (is_new) {
    plans_.push_back(record_of(plan, frame));
  }
  return {found->second, is_new};
}

ThreadEvents& StepTimer::events_of_this_thread() {
  const int64_t thread = ::syscall(SYS_gettid);
  ThreadEvents*& events = by_thread_[thread];
  if (events == nullptr) {
    events = &threads_.emplace_back(ThreadEvents{thread, {}});
  }
  return *events;
}

// ---- TimedRun ----------------------------------------------------------------------------------------------------

TimedRun::TimedRun(const Plan& plan, Frame& frame) : of_(plan) {
  {
    const std::lock_guard<std::mutex> lock(timer_mutex);
    timer_ = active_timer;
    if (timer_ == nullptr) {
      return;
    }
    const auto [index, is_first] = timer_->index_of(plan, frame);
    plan_ = index;
    noted_ = is_first ? &timer_->plans_[index] : nullptr;
    events_ = &timer_->events_of_this_thread();
    ++timer_->runs_;
  }
  whole_ = begin(StepEvent::kWholeRun);
}

TimedRun::~TimedRun() {
  if (timer_ == nullptr) {
    return;
  }
  end(whole_);
  const std::lock_guard<std::mutex> lock(timer_mutex);
  --timer_->runs_;
  timer_->last_run_ended_.notify_all();
}

StepEvent* TimedRun::begin(uint32_t position) {
  if (timer_ == nullptr) {
    return nullptr;
  }
  const uint32_t depth = events_->depth++;
  if (events_->steps.size() >= timer_->max_steps_) {
    ++events_->dropped;
    timer_->is_full_.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  StepEvent& event = events_->steps.emplace_back(StepEvent{.plan = plan_, .position = position, .depth = depth, .begin = 0});
  event.begin = timer_->now();
  return &event;
}

void TimedRun::end(StepEvent* event) {
  if (timer_ == nullptr) {
    return;
  }
  --events_->depth;
  if (event != nullptr && event->end == 0) {
    event->end = timer_->now();
  }
}

void TimedRun::note_results(const StepEvent& event, Frame& frame) {
  if (noted_ == nullptr || (noted_->steps[event.position].kernel != nullptr && !event.is_prepared)) {
    return;  // the steps of the kernel's nodes make the results
  }
  for (const auto& [value, place] : of_.steps()[event.position].results) {
    if (frame[place].isTensor() && frame[place].toTensor().defined()) {
      noted_->computed.insert_or_assign(value, facts_of(frame[place].toTensor()));
    }
  }
}

}  // namespace sconce
