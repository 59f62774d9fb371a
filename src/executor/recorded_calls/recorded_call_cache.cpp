#include "executor/recorded_calls/recorded_call_cache.h"

#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"
#include "base/call_watch.h"
#include "base/environment.h"
#include "base/exception_message.h"
#include "base/log.h"
#include "base/tensors_in.h"
#include "plan/step.h"
#include "trace/tensor_state.h"
#include "trace/tracing_conditions.h"

#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

using Clock = std::chrono::steady_clock;

bool is_ordinary(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == c10::kStrided && !tensor.is_inference();
}

}  // namespace

RecordedCallCache::RecordedCallCache(const Graph& graph, RecordedMethod method, const Options& options)
    : graph_(graph),
      method_(std::move(method)),
      options_(options),
      is_recordable_(why_never_recorded(graph) == nullptr),
      table_(options.plan_cache_capacity()) {}

void RecordedCallCache::note_plan(const std::optional<GradientExplanation>& gradients) {
  const bool leaves_operators = !gradients || gradients->outside > 0;
  if ((leaves_operators || options_.compile() != CompileMode::kBlocking) && is_recordable_ && !is_given_up_) {
    is_on_.store(true, std::memory_order_relaxed);
  }
}

bool RecordedCallCache::run(torch::jit::Stack& stack, size_t inputs, RecordedCall::RunMethod run_method) {
  if (is_in_turn_.load(std::memory_order_relaxed)) {
    end_turn();
  }
  if (meets_losers_.load(std::memory_order_relaxed) && rests_from_losers()) {
    return false;
  }
  const auto first = stack.end() - static_cast<std::ptrdiff_t>(inputs - 1);
  CallArguments arguments({first, stack.end()});
  if (why_not_now({}) != nullptr || !std::ranges::all_of(arguments.tensors, is_ordinary)) {
    return false;
  }
  const c10::intrusive_ptr<c10::ivalue::Object> module = (first - 1)->toObject();
  arguments.key.structure.push_back(static_cast<int64_t>(reinterpret_cast<intptr_t>(module.get())));
  const RecordingKey key(bytes_of(arguments.key.structure), arguments.key.sizes);
  const auto holds = [&](Recording& entry) { return static_cast<RecordedCall&>(entry).holds(*module, arguments); };
  if (const RecordingCache::Found found = table_.find(key, holds); found.recording != nullptr) {
    return run_by_plan(std::static_pointer_cast<RecordedCall>(found.recording), found.symbols, arguments, stack, run_method);
  }
  const RecordingCache::Decision decision = table_.decide(key, /*records_first=*/false);
  if (!decision.pattern || is_profiled()) {
    return false;  // an observer would see the operators of a recording once more
  }
  // The program sees gradients, of which recording a call computes one more.
  std::vector<at::Tensor> given = tensors_in(c10::IValue(module));
  given.insert(given.end(), arguments.tensors.begin(), arguments.tensors.end());
  if (std::ranges::any_of(given, sees_gradients) || is_recording_.exchange(true)) {
    return false;  // other threads need not record the same
  }
  const auto done = c10::make_scope_exit([this] { is_recording_ = false; });
  const std::shared_ptr<RecordedCall> recording = run_and_record(module, arguments, *decision.pattern, stack, run_method);
  if (recording != nullptr) {
    table_.insert(key, recording, holds);
  }
  return true;
}

void RecordedCallCache::clear() {
  table_.clear();
  const std::lock_guard<std::mutex> lock(mutex_);
  turn_.reset();
  patience_.win_all();
  losers_.win_all();
  is_on_ = is_given_up_ = meets_losers_ = is_in_turn_ = false;
}

void RecordedCallCache::drop_recordings_of(const DestroyedModules& modules) {
  table_.keep_if([&](const Recording& each) { return !modules.contains(static_cast<const RecordedCall&>(each).module()); });
}

void RecordedCallCache::end_turn() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_in_turn_ = false;
  const std::optional<Turn> turn = std::exchange(turn_, std::nullopt);
  const std::shared_ptr<RecordedCall> recording = turn ? turn->recording.lock() : nullptr;
  if (recording != nullptr && recording->race().is_on() && turn->thread == std::this_thread::get_id()) {
    recording->race().note(turn->side, std::chrono::duration<double>(Clock::now() - turn->start).count());
  }
}

void RecordedCallCache::note_loser(bool has_lost) {
  const std::lock_guard<std::mutex> lock(mutex_);
  has_lost ? losers_.lose() : losers_.win_all();
  meets_losers_ = has_lost;
}

bool RecordedCallCache::rests_from_losers() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  return !lock || !losers_.allows();
}

bool RecordedCallCache::run_by_plan(const std::shared_ptr<RecordedCall>& recording, const std::vector<int64_t>& symbols,
                                    const CallArguments& arguments, torch::jit::Stack& stack,
                                    RecordedCall::RunMethod run_method) {
  if (!recording->is_ready()) {
    // If every recording so far was refused, stop looking calls up.
    if (!recording->refusal.empty() && table_.served().by_plan == 0) {
      const std::lock_guard<std::mutex> lock(mutex_);
      patience_.lose();
      is_given_up_ = patience_.is_exhausted();
      is_on_ = !is_given_up_;
    }
    return false;
  }
  PlanRace& race = recording->race();
  const PlanRace::Side side = race.next();
  if (race.has_lost() || meets_losers_.load(std::memory_order_relaxed)) {
    note_loser(race.has_lost());
  }
  if ((!race.is_on() && side == PlanRace::Side::kOthers) || recording->has_hooks_within(arguments)) {
    return false;
  }
  if (race.is_on()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    turn_ = {recording, side, Clock::now(), std::this_thread::get_id()};
    is_in_turn_ = true;
  }
  if (side == PlanRace::Side::kOthers) {
    run_method(stack);
  } else if (std::optional<c10::IValue> result = recording->run(arguments, symbols)) {
    table_.count_run(*recording);
    stack.erase(stack.end() - static_cast<std::ptrdiff_t>(arguments.values.size() + 1), stack.end());
    stack.push_back(std::move(*result));
  } else {
    table_.count_eager("it read other numbers from tensors than when it was recorded");
    {
      const std::lock_guard<std::mutex> lock(mutex_);  // the race leaves out runs that were undone
      turn_.reset();
    }
    run_method(stack);
  }
  return true;
}

std::shared_ptr<RecordedCall> RecordedCallCache::run_and_record(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                                                const CallArguments& arguments, const SizePattern& pattern,
                                                                torch::jit::Stack& stack,
                                                                RecordedCall::RunMethod run_method) {
  const ModuleState before(module);
  const ArgumentStructure structure(arguments.values);
  const TensorStates states(arguments.tensors, tensors_in(c10::IValue(module)));
  CallWatch watch;
  run_method(stack);
  table_.count_recorded();
  if (watch.has_warned()) {
    table_.count_eager("it warns");
    return nullptr;
  }
  const std::vector<at::Tensor> tensors_now = tensors_in(arguments.values);
  const auto is_same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
  const bool keeps_arguments =
      structure.holds(arguments.values) &&
      std::equal(tensors_now.begin(), tensors_now.end(), arguments.tensors.begin(), arguments.tensors.end(), is_same);
  // These effects would happen twice if the call were recorded, and never in a plan.
  std::string refusal = watch.seen();
  if (refusal.empty() && !before.holds()) {
    refusal = "a call changes an attribute of the module";
  }
  if (refusal.empty() && !keeps_arguments) {
    refusal = "a call changes a container among its arguments";
  }
  if (refusal.empty()) {
    refusal = states.refusal();
  }
  std::shared_ptr<RecordedCall> recording;
  if (refusal.empty()) {
    try {
      recording =
          RecordedCall::rehearse(module, arguments, pattern, may_write(), states.marked(), run_method, method_, options_);
    } catch (const std::exception& failure) {
      if (environment().is_test()) {
        throw;
      }
      // The call itself has succeeded.
      refusal = "the recording failed: " + joined_lines(message_of(failure));
      log_once(LogLevel::kWarning, "calls of " + method_.name + " run without recordings: " + refusal);
    }
  }
  if (recording == nullptr) {
    recording = RecordedCall::refused(module, arguments, std::move(refusal));
  }
  if (!recording->refusal.empty()) {
    table_.count_eager(recording->refusal);
  }
  return recording;
}

bool RecordedCallCache::may_write() {
  std::call_once(is_analyzed_, [this] {
    const AliasSets sets(graph_);
    may_write_ =
        std::ranges::any_of(graph_.inputs(), [&](const Value* input) { return sets.may_be_written_within(*input); });
  });
  return may_write_;
}

Explanation::Recorded RecordedCallCache::explain() const {
  const ServedCalls served = table_.served();
  Explanation::Recorded explanation;
  explanation.by_plan = served.by_plan;
  explanation.recorded = served.recorded;
  explanation.reasons = served.reasons;
  explanation.why_sizes_are_fixed = table_.why_sizes_are_fixed();
  for (const auto& plan : table_.recordings()) {
    auto& recording = static_cast<RecordedCall&>(*plan);
    explanation.slower += recording.race().has_lost() ? 1 : 0;
    recording.explain(explanation.plans);
  }
  return explanation;
}

}  // namespace sconce
