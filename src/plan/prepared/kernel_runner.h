// KernelRunner: what steps that run a kernel have in common.
#pragma once

#include "plan/frame.h"
#include "plan/prepared/prepared_step.h"
#include "plan/prepared/step_state.h"

#include <string>

namespace sconce {

// Calls `change`, which may change what slots, kernels and results hold, and tells the check of shells, if there is one.
// After an exception the run is over, and the check with it.
template <typename Change>
void change_shells(const Frame& frame, const Change& change) {
  ShellCheck* const check = frame.shell_check();
  if (check != nullptr) [[unlikely]] {
    check->before_change();
  }
  change();
  if (check != nullptr) [[unlikely]] {
    check->after_change();
  }
}

// Compares the operands of each run with those that the kernel was prepared for, and gives results their memory.
class KernelRunner {
 public:
  explicit KernelRunner(KernelStepParts parts) : parts_(std::move(parts)) {}

  const KernelStepParts& parts() const { return parts_; }
  StepState& state_of(Frame& frame) const;
  // Returns an operand that is not in a slot.
  const c10::IValue& boxed(Frame& frame, const PreparedOperand& operand) const;

  // Returns whether the operators must run themselves: autograd may record them, or somebody observes them.
  bool leaves_to_operators(Frame& frame) const {
    return frame.autograd_use == AutogradUse::kPerStep && asks_operators(frame);
  }
  // Takes the operands of this run, and prepares a kernel for them if need be. Returns false if none can serve them.
  template <typename MakeKernel>
  bool take_operands(Frame& frame, StepState& state, const Op* op, const MakeKernel& make_kernel) const {
    if (state.is_ready && match_operands(frame, state)) [[likely]] {
      return !state.is_refused;
    }
    if (choose_other_form(frame, state)) {
      return !state.is_refused;
    }
    if (has_given_up(state)) {
      return false;
    }
    change_shells(frame, [&] {
      const bool comes_back = state.make_room(hash_of_operands(frame));
      if (begin_to_prepare(frame, state, op, comes_back)) {
        const bool is_new = !prepare_again(state);
        if (is_new) {
          prepare(state, make_kernel());
        }
        choose_way(frame, state, is_new);
        finish_preparing(frame, state);
      }
      report_refusals(frame, state);
    });
    return !state.is_refused;
  }
  // Tells the kernel where random numbers of this run come from.
  static void tell_draws(Frame& frame, StepState& state) {
    state.arguments.draws_ = frame.capture == nullptr ? nullptr : frame.capture->draws;
  }
  static bool reads_numbers_in_memory(const Frame& frame) {
    return frame.capture != nullptr && !frame.capture->number_memory.empty();
  }
  // Returns whether no kernel served the operands of the last run, or it could not run.
  bool is_refused(const Frame& frame) const {
    const StepState* state = frame.states[parts_.state].get();
    return state == nullptr || state->is_refused || state->waits;
  }
  // Runs the kernel, hands its results to their readers, and drops operands at their last use.
  void run(Frame& frame, StepState& state) const;
  // The parts of `run`: gives the results memory, and hands them to their readers after the kernel ran.
  void take_memory(Frame& frame, StepState& state) const;
  void hand_out(Frame& frame, StepState& state) const;
  void release_slots(Frame& frame) const;
  // Lets the kernel find an operand at `data` in this run.
  static void point_operand_at(StepState& state, size_t position, void* data) {
    state.arguments.data_[state.arguments.arguments_[position].first] = data;
  }

  // Ends the trial of this form, once it has a result.
  void end_trial(Frame& frame, StepState& state) const;
  // Returns " $1 %2.0 -> $3 release $1".
  std::string describe() const;

 private:
  static bool has_given_up(StepState& state);
  bool match_operands(Frame& frame, PreparedForm& form) const;
  bool choose_other_form(Frame& frame, StepState& state) const;
  uint64_t hash_of_operands(Frame& frame) const;
  bool begin_to_prepare(Frame& frame, StepState& state, const Op* op, bool comes_back) const;
  bool prepare_again(StepState& state) const;
  void prepare(StepState& state, KernelPtr kernel) const;
  void choose_way(Frame& frame, StepState& state, bool is_new) const;
  void finish_preparing(Frame& frame, StepState& state) const;
  void report_refusals(Frame& frame, const StepState& state) const;
  bool take_result(Frame& frame, StepState& state, const TimedChoices::Times& times) const;
  bool asks_operators(Frame& frame) const;
  bool record_operand(Frame& frame, StepState& state, size_t i) const;
  void give_to_slot(Frame& frame, KernelResult& result, uint32_t index) const;
  static at::Tensor new_result(Frame& frame, KernelResult& result, const PreparedResult& place);
  void find_number_memory(Frame& frame, KernelArguments& arguments) const;

  KernelStepParts parts_;
};

}  // namespace sconce
