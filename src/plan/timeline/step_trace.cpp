#include <sconce/step_trace.h>

#include "ir/text/print.h"
#include "plan/timeline/step_timer.h"
#include "plan/timeline/step_work.h"
#include "plan/timeline/trace_json.h"

#include <c10/util/Exception.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace sconce {

std::string name_of(const TimedPlan::Step& step) { return step.word.empty() ? step.node->kind().toQualString() : step.word; }

std::string source_of(const TimedPlan::Step& step) {
  return step.node != nullptr && step.node->location() ? step.node->location()->file_line_column() : std::string();
}

class StepTrace::Impl {
 public:
  explicit Impl(size_t max_steps) : timer_(max_steps) {}
  bool is_full() const { return timer_.is_full(); }
  const StepTimer& stopped() {
    timer_.stop();
    return timer_;
  }

 private:
  StepTimer timer_;
};

StepTrace::StepTrace(size_t max_steps) : impl_(std::make_unique<Impl>(max_steps)) {}
StepTrace::~StepTrace() = default;
bool StepTrace::is_full() const { return impl_->is_full(); }
void StepTrace::stop() { impl_->stopped(); }

std::vector<StepTiming> StepTrace::timings() {
  const StepTimer& timer = impl_->stopped();
  struct Sum {
    uint64_t runs = 0;
    uint64_t prepared = 0;
    int64_t time = 0;
  };
  std::vector<std::vector<Sum>> sums;  // by plan, then position
  for (const TimedPlan& plan : timer.plans()) {
    sums.emplace_back(plan.steps.size());
  }
  for (const ThreadEvents& thread : timer.threads()) {
    std::vector<Sum*> around;  // the steps that contain the event
    for (const StepEvent& event : thread.steps) {
      around.resize(event.depth, nullptr);
      const int64_t time = event.end - event.begin;
      Sum* sum = nullptr;
      if (event.position != StepEvent::kWholeRun) {
        sum = &sums[event.plan][event.position];
        sum->runs += 1;
        sum->prepared += event.is_prepared ? 1 : 0;
        sum->time += time;
      } else if (!around.empty() && around.back() != nullptr) {
        around.back()->time -= time;
      }
      around.push_back(sum);
    }
  }
  std::vector<StepTiming> timings;
  for (size_t plan = 0; plan < sums.size(); ++plan) {
    const TimedPlan& recorded = timer.plans()[plan];
    const GraphWork work(*recorded.graph, recorded.inputs, recorded.computed);
    for (size_t position = 0; position < sums[plan].size(); ++position) {
      const Sum& sum = sums[plan][position];
      const TimedPlan::Step& step = recorded.steps[position];
      if (sum.runs > 0) {
        timings.push_back({recorded.name, position, name_of(step), step.node != nullptr ? print_node_line(*step.node) : "",
                           source_of(step), sum.runs, sum.prepared, static_cast<double>(sum.time) * 1e-9,
                           step.node != nullptr ? work.of(step.kernel != nullptr ? *step.kernel : *step.node) : StepWork{}});
      }
    }
  }
  return timings;
}

uint64_t StepTrace::calls() {
  uint64_t calls = 0;
  for (const ThreadEvents& thread : impl_->stopped().threads()) {
    for (const StepEvent& event : thread.steps) {
      calls += event.depth == 0 ? 1 : 0;
    }
  }
  return calls;
}

double StepTrace::seconds() {
  int64_t time = 0;
  for (const ThreadEvents& thread : impl_->stopped().threads()) {
    for (const StepEvent& event : thread.steps) {
      time += event.depth == 0 ? event.end - event.begin : 0;
    }
  }
  return static_cast<double>(time) * 1e-9;
}

uint64_t StepTrace::dropped_steps() {
  uint64_t dropped = 0;
  for (const ThreadEvents& thread : impl_->stopped().threads()) {
    dropped += thread.dropped;
  }
  return dropped;
}

std::string StepTrace::json() { return trace_json(impl_->stopped()); }

void StepTrace::write(const std::string& path) {
  const std::string text = json();
  errno = 0;
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  TORCH_CHECK(file != nullptr, path, ": cannot be written: ", std::strerror(errno));
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  const bool is_closed = std::fclose(file) == 0;  // a full disk may be reported only here
  TORCH_CHECK(is_written && is_closed, path, ": cannot be written: ", std::strerror(is_written ? errno : error));
}

}  // namespace sconce
