#include "plan/steps/steps.h"

namespace sconce {
namespace {

class MoveStep final : public Step {
 public:
  MoveStep(Operands operands, Registers targets)
      : Step(true), operands_(std::move(operands)), targets_(std::move(targets)) {}

  void run(Frame& frame) const override {
    for (const Operand operand : operands_) {
      frame.stack.push_back(take(frame, operand));
    }
    for (size_t i = targets_.size(); i-- > 0;) {
      frame[targets_[i]] = std::move(frame.stack[i]);
    }
    frame.stack.clear();
  }

  std::string describe() const override { return describe_step("move", operands_, targets_); }

 private:
  Operands operands_;
  Registers targets_;
};

class ReturnStep final : public Step {
 public:
  explicit ReturnStep(Operands operands) : Step(true), operands_(std::move(operands)) {}

  void run(Frame& frame) const override {
    for (const Operand operand : operands_) {
      frame.stack.push_back(take(frame, operand));
    }
  }

  std::string describe() const override { return describe_step("return", operands_, {}); }

 private:
  Operands operands_;
};

class DropStep final : public Step {
 public:
  explicit DropStep(Registers registers) : Step(true), registers_(std::move(registers)) {}

  void run(Frame& frame) const override {
    for (const Register index : registers_) {
      frame[index] = c10::IValue();
    }
  }

  std::string describe() const override {
    Operands dropped;
    for (const Register index : registers_) {
      dropped.push_back({index});
    }
    return describe_step("drop", dropped, {});
  }

 private:
  Registers registers_;
};

class JumpStep final : public JumpingStep {
 public:
  void run(Frame& frame) const override { frame.next_step = target_; }
  std::string describe() const override { return "jump " + std::to_string(target_); }
};

class JumpUnlessStep final : public JumpingStep {
 public:
  explicit JumpUnlessStep(Operand condition) : condition_(condition) {}

  void run(Frame& frame) const override {
    if (!frame[condition_.index].toBool()) {
      frame.next_step = target_;
    }
  }
  std::string describe() const override {
    return "jump_unless " + sconce::describe(condition_) + " " + std::to_string(target_);
  }

 private:
  Operand condition_;
};

class LoopHeadStep final : public JumpingStep {
 public:
  LoopHeadStep(Register counter, Register limit, Register condition, Register iteration)
      : counter_(counter), limit_(limit), condition_(condition), iteration_(iteration) {}

  void run(Frame& frame) const override {
    const int64_t done = frame[counter_].toInt();
    if (done >= frame[limit_].toInt() || !frame[condition_].toBool()) {
      frame.next_step = target_;
      return;
    }
    frame[iteration_] = done;
    frame[counter_] = done + 1;
  }
  std::string describe() const override {
    return "loop %" + std::to_string(counter_) + " < %" + std::to_string(limit_) + " while %" + std::to_string(condition_) +
           " -> %" + std::to_string(iteration_) + ", else " + std::to_string(target_);
  }

 private:
  Register counter_;
  Register limit_;
  Register condition_;
  Register iteration_;
};

}  // namespace

StepPtr make_move_step(Operands operands, Registers targets) {
  return std::make_unique<MoveStep>(std::move(operands), std::move(targets));
}
StepPtr make_return_step(Operands operands) { return std::make_unique<ReturnStep>(std::move(operands)); }
StepPtr make_drop_step(Registers registers) { return std::make_unique<DropStep>(std::move(registers)); }
JumpingStepPtr make_jump_step() { return std::make_unique<JumpStep>(); }
JumpingStepPtr make_jump_unless_step(Operand condition) { return std::make_unique<JumpUnlessStep>(condition); }
JumpingStepPtr make_loop_head_step(Register counter, Register limit, Register condition, Register iteration) {
  return std::make_unique<LoopHeadStep>(counter, limit, condition, iteration);
}

}  // namespace sconce
