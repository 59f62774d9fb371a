#include "plan/run_plan.h"

#include "base/exception_message.h"
#include "base/log.h"
#include "ir/text/print.h"
#include "plan/caller_share.h"
#include "plan/intra_op_threads.h"
#include "plan/timeline/step_timer.h"

#include <sconce/script_error.h>

#include <ATen/Parallel.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/jit/runtime/jit_exception.h>

#include <optional>

namespace sconce {
namespace {

struct NotObserved {
  struct Slice {
    Slice(NotObserved& /*run*/, size_t /*position*/) {}
    void finish(const Step& /*step*/, const Frame& /*frame*/) {}
  };
};

// Notes the steps that run by themselves, while shells are watched.
struct WatchedRun {
  struct Slice {
    Slice(WatchedRun& run, size_t at) : check(run.check), position(at) {}
    void finish(const Step& step, const Frame& frame) {
      if (!step.ran_prepared(frame)) {
        check.note_step(position);
      }
    }
    ShellCheck& check;
    size_t position;
  };
  ShellCheck& check;
};

// `Observer::Slice` exists while a step runs.
template <class Observer>
void run_each_step(const Plan& plan, Frame& frame, AutogradSwitch& autograd, Observer& observer) {
  const auto steps = plan.steps();
  while (frame.next_step < steps.size()) {
    const size_t position = frame.next_step++;
    const Step& step = *steps[position].step;
    autograd.skip(skips_autograd(frame, step));
    typename Observer::Slice slice(observer, position);
    step.run(frame);
    slice.finish(step, frame);
  }
}

void run_steps(const Plan& plan, Frame& frame) {
  frame.next_step = 0;
  const CallerShare share;
  const IntraOpThreads threads(plan.thread_limit().with(share.threads()));
  plan.note_threads(at::in_parallel_region() ? 1 : at::get_num_threads());
  std::optional<c10::impl::ExcludeDispatchKeyGuard> no_autocast;
  if (plan.excludes_autocast()) [[unlikely]] {
    no_autocast.emplace(c10::autocast_dispatch_keyset);
  }
  AutogradSwitch autograd;
  frame.autograd = &autograd;
  frame.runs_prepared = frame.autograd_use != AutogradUse::kAll && plan.has_prepared_steps() && !operators_are_observed();
  if (frame.runs_prepared) {
    ++frame.run_number;
    frame.ran_nodes_of_group = false;
    frame.waits_for_kernels = false;
    frame.update_layout();
    if (shells_are_checked()) [[unlikely]] {
      frame.begin_shell_check();
    }
  } else if (plan.has_prepared_steps()) {
    plan.refusals().note_run(frame.autograd_use == AutogradUse::kAll ? NotPrepared::kGradients : NotPrepared::kObserved);
  }
  if (StepTimer::is_active()) [[unlikely]] {
    TimedRun timed(plan, frame);
    run_each_step(plan, frame, autograd, timed);
  } else if (frame.shell_check() != nullptr) [[unlikely]] {
    WatchedRun watched{*frame.shell_check()};
    run_each_step(plan, frame, autograd, watched);
  } else {
    NotObserved none;
    run_each_step(plan, frame, autograd, none);
  }
}

// Leaves the `with` blocks after an exception, the innermost first. The exception that ended the run is reported; as in
// LibTorch, an exception that `__exit__` raises in addition is dropped. Only a std::exception is dropped: the cancellation
// of a thread must continue.
void leave_contexts(Frame& frame) {
  while (!frame.entered.empty()) {
    EnteredContext context = std::move(frame.entered.back());
    frame.entered.pop_back();
    try {
      context.manager->leave(std::move(context.object));
    } catch (const std::exception& dropped) {
      log(LogLevel::kWarning,
          c10::str("while an exception left a `with` block its __exit__ raised another one: ", dropped.what()));
    } catch (...) {
      leave_contexts(frame);
      throw;
    }
  }
}

void run_steps_and_leave(const Plan& plan, Frame& frame) {
  try {
    run_steps(plan, frame);
  } catch (...) {
    leave_contexts(frame);
    throw;
  }
}

// The node whose step threw; null before the first step and for a step between blocks, which fail only for lack of memory.
const Node* failed_node(const Plan& plan, const Frame& frame) {
  return frame.next_step == 0 ? nullptr : plan.steps()[frame.next_step - 1].node;
}

std::string frames_of(const Node* node) { return node == nullptr ? std::string() : stack_frames(node->location()); }

std::string describe_failure(const Node* node) {
  if (node == nullptr) {
    return operator_context("no operator", {});
  }
  const std::string place = node->location() ? node->location()->file_line_column() : std::string();
  return operator_context(print_node_line(*node) + (place.empty() ? "" : " # " + place), frames_of(node));
}

}  // namespace

AutogradSwitch::AutogradSwitch() : excluded_before_(c10::impl::tls_local_dispatch_key_set().excluded_) {}

void AutogradSwitch::apply(bool on) {
  constexpr c10::DispatchKeySet kAutograd = c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  if (on) {
    excluded_before_ = keys.excluded_;
    keys.excluded_ = keys.excluded_ | kAutograd;
  } else {
    keys.excluded_ = (keys.excluded_ - kAutograd) | (excluded_before_ & kAutograd);
  }
  c10::impl::_force_tls_local_dispatch_key_set(keys);
  skipping_ = on;
  if (on && autocast_is_on()) [[unlikely]] {
    casts_.emplace();
  } else {
    casts_.reset();
  }
}

void run_plan(const Plan& plan, torch::jit::Stack& stack, AutogradUse autograd) {
  FrameLease lease(plan);
  run_plan(lease, stack, autograd);
}

void run_plan(FrameLease& lease, torch::jit::Stack& stack, AutogradUse autograd) {
  const Plan& plan = lease.plan();
  Frame& frame = *lease;
  frame.autograd_use = autograd;
  const size_t first = stack.size() - plan.inputs().size();
  for (size_t i = 0; i < plan.inputs().size(); ++i) {
    frame[plan.inputs()[i]] = std::move(stack[first + i]);
  }
  stack.resize(first);
  try {
    run_steps_and_leave(plan, frame);
  } catch (const ScriptError& raised) {
    // Raised here or in a callee, whose frames are further in.
    throw ScriptError(raised.message(), raised.getPythonClassName(), frames_of(failed_node(plan, frame)) + raised.frames());
  } catch (const torch::jit::JITException&) {
    // Raised by an operator that runs scripts itself.
    throw;
  } catch (c10::Error& error) {
    error.add_context(describe_failure(failed_node(plan, frame)));
    drop_frames(error);
    throw;
  } catch (const std::exception& error) {
    c10::Error with_operator{std::string(error.what())};
    with_operator.add_context(describe_failure(failed_node(plan, frame)));
    throw with_operator;
  }
  // The last step left the outputs on the frame's stack.
  for (c10::IValue& output : frame.stack) {
    stack.push_back(std::move(output));
  }
  if (frame.shell_check() != nullptr) [[unlikely]] {
    frame.end_shell_check();
  }
}

}  // namespace sconce
