// Step: one unit of work of a plan.
#pragma once

#include "plan/frame.h"

#include <string>
#include <vector>

namespace sconce {

// The register of an operand. A last use is moved out of its register, so that memory is freed as early as in eager
// execution, and operators can observe that they are the only owner.
struct Operand {
  Register index = 0;
  bool last_use = false;
};

// Returns the operand: moves it at its last use, else copies it.
inline c10::IValue take(Frame& frame, Operand operand) {
  return operand.last_use ? std::move(frame[operand.index]) : frame[operand.index];
}

// Steps are immutable and shared by all threads; state that a step keeps between runs is in the frame. A step is prepared
// once per frame, then run any number of times.
class Step {
 public:
  virtual ~Step() = default;
  virtual void prepare(Frame& /*frame*/) const {}
  virtual void run(Frame& frame) const = 0;

  // Returns whether the step's last run in this frame used a prepared kernel.
  virtual bool ran_prepared(const Frame& /*frame*/) const { return false; }

  // Returns a line for people: "aten::add %3 %4 -> %5", "jump 12".
  virtual std::string describe() const = 0;
  // Returns whether the step may run below the dispatcher's autograd layers if nothing requires a gradient: its results are
  // new, and it writes no operand (rule R4).
  bool may_skip_autograd() const { return may_skip_autograd_; }

  // Returns whether autograd may record the step in this run, because of its operands.
  virtual bool reads_gradients(const Frame& /*frame*/) const { return true; }

 protected:
  explicit Step(bool may_skip_autograd) : may_skip_autograd_(may_skip_autograd) {}

 private:
  bool may_skip_autograd_;
};

// Returns whether the step runs below the dispatcher's autograd layers in this run.
inline bool skips_autograd(const Frame& frame, const Step& step) {
  return step.may_skip_autograd() && (frame.autograd_use == AutogradUse::kNone ||
                                      (frame.autograd_use == AutogradUse::kPerStep && !step.reads_gradients(frame)));
}

// Returns whether autograd may record what is computed of the value now: it requires a gradient, or has a tangent.
bool may_be_recorded(const c10::IValue& value);

// Returns whether something is told of each operator that is called now.
bool is_profiled();
// Returns whether the caller sees single operators now: profilers do, and autocast for any device casts their operands.
bool operators_are_observed();

// Returns whether further keys of the dispatcher than the usual ones are included on this thread. A transform that uses
// them (functorch, tracing, a tracer) must see every operator, as in eager execution.
bool transform_is_active();

// Returns "%3", or "%3!" at a last use.
std::string describe(Operand operand);
// Returns "aten::add %3 %4! -> %5".
std::string describe_step(const std::string& name, const std::vector<Operand>& operands,
                          const std::vector<Register>& results);

}  // namespace sconce
