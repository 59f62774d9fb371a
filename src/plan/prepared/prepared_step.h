// PreparedStep: an operator whose set-up is done once for operands of a form, and not in every run.
#pragma once

#include "plan/prepared/group.h"
#include "plan/prepared/kernel.h"
#include "plan/steps/steps.h"

#include <vector>

namespace sconce {

class KernelRunner;
struct StepState;

// An attribute of an object that the run does not change, at the end of a chain of attributes.
struct AttributePath {
  Register object;              // where the chain begins
  std::vector<uint32_t> slots;  // of the objects along the chain
};

// Where a prepared step finds an argument.
struct PreparedOperand {
  static constexpr uint32_t kNone = UINT32_MAX;
  enum class Source : uint8_t {
    kSlot,      // a tensor in `slot`; `box` holds it, too, after an ordinary step made it
    kBox,       // a tensor, or None
    kValue,     // any other value
    kElement,   // an element of a list of ints
    kRunTime,   // a number that the kernel reads in each run
    kConstant,  // a value of the plan
  };
  Source source;
  Register box;
  uint32_t position;  // of the argument in the schema; consecutive operands of one position form a list
  bool in_list = false;
  uint32_t slot = kNone;
  uint32_t attribute = kNone;  // index of the attribute that is the operand: `box` is empty
  bool is_weight = false;      // see KernelArguments::Weight
  bool is_constant = false;
};

struct PreparedResult {
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  static constexpr Register kNoHome = UINT32_MAX;
  Register box;
  uint32_t slot = kNoSlot;  // without a slot the result is a new tensor in each run
  bool is_boxed = true;     // whether ordinary steps read the result: a slot's shell is put into `box`
  bool is_reused = false;   // a result without a slot may be a tensor of a former run (ReusedResults)
  Register home = kNoHome;  // of a tensor in whose memory a result without a slot is computed, if it has the result's form
};

// The operands and results of a step that runs a kernel.
struct KernelStepParts {
  std::vector<PreparedOperand> operands;
  std::vector<AttributePath> attributes;
  std::vector<PreparedResult> results;
  std::vector<Register> dropped;   // registers whose values are used for the last time
  std::vector<uint32_t> released;  // slots whose memory is used for the last time
  size_t arguments = 0;            // of the kernel
  bool is_view = false;            // the results are views of the first operand
  bool is_product = false;         // the kernel may keep weights
  size_t operators = 1;            // whose place the kernel takes
  c10::Device device = c10::kCPU;  // of all operands and results
  KernelLimits limits;
  uint32_t state = 0;  // index of the step's state in a frame
};

class GroupStep;

// In each run the step compares its operands with those that the kernel was prepared for: sizes, strides, dtypes, devices,
// and the values of numbers and lists. If they differ, it prepares the kernel again. If the kernel cannot serve them, or
// gradients are recorded, the ordinary steps run, and the slots take their results. The step assumes nothing else, so no
// guard protects it.
class OperatorStep : public Step {
 public:
  // Lets the kernel of a group, whose step comes next among those that do something, run on each part of the result once it
  // is complete, as long as the part is in the cache. The result is an operand of the group and nothing else uses it.
  virtual void set_follower(const GroupStep& follower) = 0;

 protected:
  OperatorStep() : Step(true) {}
};
std::unique_ptr<OperatorStep> make_prepared_step(const Node& node, const KernelRow& kernel, KernelStepParts parts,
                                                 std::vector<StepPtr> ordinary);

// Computes a group of nodes by one kernel, and jumps over the steps of the single nodes, which follow. If there is no kernel
// yet, or none for such operands, these steps run.
class GroupStep : public JumpingStep {
 public:
  // Completes the step, once the steps of the single nodes are made.
  virtual void set_parts(KernelStepParts parts) = 0;
  // Returns "kernel add mul tanh +9".
  virtual std::string name() const = 0;
  // Runs the kernel of an operator, which has taken its operands, and that of the group on its result, which is the group's
  // operand in the slot. Then the plan goes on after the group. Returns false if that is not possible in this run; then
  // neither has run.
  virtual bool run_after(Frame& frame, const KernelRunner& before, StepState& state_before) const = 0;
};
std::unique_ptr<GroupStep> make_group_step(const NodeGroup& group, const GroupCompiler& compiler);

// Frees the memory of slots after their last use, if it is not in the arena.
StepPtr make_release_step(std::vector<uint32_t> slots);

// Runs the step in runs that use no kernels. Reads an attribute that only prepared steps use.
StepPtr make_unprepared_step(StepPtr step);

}  // namespace sconce
