// One unit of work of a plan.
#pragma once

#include "plan/frame.h"

#include <string>
#include <vector>

namespace sconce {

// Where a step finds an operand. A last use is moved out of its register, so that memory is free as early as in eager
// execution and operators can see that they are the only owner.
struct Operand {
  Register index = 0;
  bool last_use = false;
};

// Takes the operand: moves it at its last use, else copies.
inline c10::IValue take(Frame& frame, Operand operand) {
  return operand.last_use ? std::move(frame[operand.index]) : frame[operand.index];
}

// Steps are immutable and shared by all threads: what a step remembers between runs lives in the frame. A step is prepared
// once per frame, then run any number of times.
class Step {
 public:
  virtual ~Step() = default;
  virtual void prepare(Frame& /*frame*/) const {}
  virtual void run(Frame& frame) const = 0;

  // For people: "aten::add %3 %4 -> %5", "jump 12".
  virtual std::string describe() const = 0;
  // Whether the step gives the same below the dispatcher's autograd layers when nothing requires a gradient: it neither
  // writes nor aliases what it is given (rule R4).
  bool may_skip_autograd() const { return may_skip_autograd_; }

 protected:
  explicit Step(bool may_skip_autograd) : may_skip_autograd_(may_skip_autograd) {}

 private:
  bool may_skip_autograd_;
};

// "%3" or "%3!" at a last use.
std::string describe(Operand operand);
// "aten::add %3 %4! -> %5".
std::string describe_step(const std::string& name, const std::vector<Operand>& operands,
                          const std::vector<Register>& results);

}  // namespace sconce
