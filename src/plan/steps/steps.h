// The kinds of steps. Each `make_…` gives the step for one node kind; lower.cpp decides which.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "plan/step.h"

#include <memory>
#include <utility>
#include <vector>

namespace sconce {

class Callees;
class Profile;
using StepPtr = std::unique_ptr<Step>;
using Operands = std::vector<Operand>;
using Registers = std::vector<Register>;

// ---- operators (steps_operator.cpp): a call through the dispatcher, or of a function of LibTorch's operator registry.
// `sizes_may_change`: of tensors that exist, somewhere in the graph.
Expected<StepPtr> make_operator_step(const Node& node, Operands operands, Registers results, bool sizes_may_change);

// ---- builtins (steps_builtin.cpp): operators that LibTorch's registry has, but not as a node means them.
// Null for every other operator.
StepPtr make_builtin_step(const Node& node, const Operands& operands, const Registers& results);

// ---- numbers, lists, what tensors say about themselves (steps_scalar.cpp): operators too small for a call.
// Null for every other operator.
StepPtr make_scalar_step(const Node& node, const Operands& operands, const Registers& results);

// ---- the language's constructs (steps_language.cpp)
// Refuses the node kinds that are not supported yet.
Expected<StepPtr> make_language_step(const Node& node, Operands operands, Registers results);

// ---- delegates (delegate.cpp): a kernel of the user's, or the subgraph's operators
Expected<StepPtr> make_delegate_step(const Node& node, Operands operands, Registers results);

// ---- calls (steps_call.cpp): functions and methods that were not inlined, `with` blocks, fork and wait, sorting of
// objects.
bool is_call(const Node& node);
// Requires is_call(node). `callees`: null for a graph that has none.
Expected<StepPtr> make_call_step(const Node& node, Operands operands, Registers results, Callees* callees);

// ---- profiling (steps_profile.cpp): what a run sees is added to the profile, which outlives the step.
StepPtr make_profile_values_step(Profile& profile, std::vector<std::pair<const Value*, Register>> values);
StepPtr make_profile_run_step(Profile& profile);
StepPtr make_profile_branch_step(Profile& profile, const Node& branch, bool taken);
StepPtr make_profile_loop_step(Profile& profile, const Node& loop);
StepPtr make_profile_round_step(Profile& profile, const Node& loop);

// ---- control flow (steps_control.cpp): positions are indices of steps.
// Moves the operands to the registers, all at once: a register may be source and target.
StepPtr make_move_step(Operands operands, Registers targets);
// Leaves the operands on the frame's stack: the end of the plan.
StepPtr make_return_step(Operands operands);
// Empties registers.
StepPtr make_drop_step(Registers registers);

// Steps that jump; their target is set once it is known.
class JumpingStep : public Step {
 public:
  void set_target(size_t target) { target_ = target; }

 protected:
  JumpingStep() : Step(true) {}
  size_t target_ = 0;
};
using JumpingStepPtr = std::unique_ptr<JumpingStep>;

JumpingStepPtr make_jump_step();
JumpingStepPtr make_jump_unless_step(Operand condition);

// A loop's head: `counter`, `limit` and `condition` are registers of its own. Jumps to the target when the limit is
// reached or the condition is false; else puts the iteration's number into `iteration` and counts on.
JumpingStepPtr make_loop_head_step(Register counter, Register limit, Register condition, Register iteration);

}  // namespace sconce
