#include "plan/prepared/prepared_step.h"

#include "plan/prepared/kernel_runner.h"

#include <chrono>

namespace sconce {
namespace {

class PreparedStep final : public OperatorStep {
 public:
  PreparedStep(const Node& node, const KernelRow& kernel, KernelStepParts parts, std::vector<StepPtr> ordinary)
      : node_(node), kernel_(kernel), runner_(std::move(parts)), ordinary_(std::move(ordinary)) {}

  void prepare(Frame& frame) const override {
    for (const StepPtr& step : ordinary_) {
      step->prepare(frame);
    }
  }

  void run(Frame& frame) const override {
    if (!frame.runs_prepared) {
      run_ordinary(frame);
      return;
    }
    StepState& state = runner_.state_of(frame);
    const bool has_kernel =
        !runner_.leaves_to_operators(frame) && runner_.take_operands(frame, state, &node_.op(), kernel_.make);
    if (has_kernel && state.trial != nullptr) [[unlikely]] {
      run_timed(frame, state);
    } else if (has_kernel && can_run(state)) {
      if (follower_ == nullptr || !follower_->run_after(frame, runner_, state)) {
        runner_.run(frame, state);
      }
    } else {
      run_ordinary_and_adopt(frame, state);
      runner_.release_slots(frame);
    }
  }

  void set_follower(const GroupStep& follower) override { follower_ = &follower; }

  bool ran_prepared(const Frame& frame) const override { return frame.runs_prepared && !runner_.is_refused(frame); }

  std::string describe() const override {
    return std::string("prepared ") + node_.kind().toQualString() + runner_.describe() +
           (follower_ != nullptr ? ", with the group" : "");
  }

 private:
  static bool can_run(StepState& state) {
    state.waits = state.may_wait && !state.kernel->can_run(state.arguments);
    return !state.waits;
  }

  // Runs the kernel or the operator, whichever the trial asks for, and tells it the time.
  void run_timed(Frame& frame, StepState& state) const {
    using Clock = std::chrono::steady_clock;
    const bool can = can_run(state);  // is asked in each run: weights settle meanwhile
    const bool by_kernel = can && state.trial->next() == Trial::Way::kKernel;
    state.waits = !by_kernel;
    const auto begin = Clock::now();
    if (by_kernel) {
      runner_.run(frame, state);
    } else {
      run_ordinary_and_adopt(frame, state);
    }
    state.trial->note(by_kernel ? Trial::Way::kKernel : Trial::Way::kOperator,
                      std::chrono::duration<double>(Clock::now() - begin).count());
    if (!by_kernel) {
      runner_.release_slots(frame);
    }
    runner_.end_trial(frame, state);
  }

  void run_ordinary(Frame& frame) const {
    for (const StepPtr& step : ordinary_) {
      frame.autograd->skip(skips_autograd(frame, *step));
      step->run(frame);
    }
  }

  // Runs the ordinary steps on operands in slots and boxes, and puts their results into the slots.
  void run_ordinary_and_adopt(Frame& frame, StepState& state) const {
    for (const PreparedOperand& operand : runner_.parts().operands) {
      // The box may hold what an earlier run left there. Only a tensor that no shell can stand for is surely in the box.
      if (operand.source == PreparedOperand::Source::kSlot) {
        if (frame.slots[operand.slot].stamp != 0) {
          frame[operand.box] = frame.slots[operand.slot].shell;
        }
      } else if (operand.attribute != PreparedOperand::kNone) {
        frame[operand.box] = runner_.boxed(frame, operand);
      }
    }
    run_ordinary(frame);
    change_shells(frame, [&] {
      for (size_t i = 0; i < runner_.parts().results.size(); ++i) {
        if (runner_.parts().results[i].slot != PreparedResult::kNoSlot) {
          adopt(frame, state, state.results[i], runner_.parts().results[i]);
        }
      }
    });
  }

  // Puts a result of the ordinary steps into its slot.
  void adopt(Frame& frame, const StepState& state, KernelResult& result, const PreparedResult& place) const {
    TensorSlot& slot = frame.slots[place.slot];
    const c10::IValue& made = frame[place.box];
    OperandGuard made_as;
    if (!made.isTensor() || !made.toTensor().defined() || !made_as.prepare(made, made.toTensor().device())) {
      // A sparse tensor, for example: its readers find it in the box. A kernel that runs next places its shell again.
      slot.shell = at::Tensor();
      slot.stamp = 0;
      slot.in_arena = false;
      return;
    }
    // The shell that a kernel placed, for these operands or others, may be a view of another slot's shell, or that shell.
    if (!slot.shell.defined() || slot.is_of_kernel || result.tensor().defined() || slot.shell.storage().use_count() > 1 ||
        !have_same_form(slot.shell, made_as.shell)) {
      slot.shell = std::move(made_as.shell);
      slot.is_of_kernel = false;
      slot.stamp = frame.next_stamp++;
      slot.bytes = 0;
      slot.in_arena = false;
    }
    slot.data = made.toTensor().mutable_data_ptr();
    point_storage_at(slot.shell, slot.data);
    frame.hold(place.slot, made);
    if (state.is_refused) {
      result.forget_shell();
    }
  }

  const Node& node_;  // of the graph that the plan keeps alive
  const KernelRow& kernel_;
  const KernelRunner runner_;
  const std::vector<StepPtr> ordinary_;
  const GroupStep* follower_ = nullptr;
};

}  // namespace

std::unique_ptr<OperatorStep> make_prepared_step(const Node& node, const KernelRow& kernel, KernelStepParts parts,
                                                 std::vector<StepPtr> ordinary) {
  return std::make_unique<PreparedStep>(node, kernel, std::move(parts), std::move(ordinary));
}

}  // namespace sconce
