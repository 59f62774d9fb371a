// The kinds of steps. Each `make_…` makes the step for a kind of node; lower/lower.cpp decides which to call.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "plan/step.h"

#include <memory>
#include <utility>
#include <vector>

namespace sconce {

class Callees;
class Plan;
class Profile;
struct DifferentiableFunction;
using StepPtr = std::unique_ptr<Step>;
using Operands = std::vector<Operand>;
using Registers = std::vector<Register>;

// ---- operators (operator.cpp): a call through the dispatcher, or of a function in LibTorch's operator registry.
// `sizes_may_change`: a node of the graph may change the sizes of an existing tensor. `is_exact`: composite operators run
// with autograd's layers.
Expected<StepPtr> make_operator_step(const Node& node, Operands operands, Registers results, bool sizes_may_change,
                                     bool is_exact);

// ---- builtins (builtin.cpp): operators whose function in LibTorch's registry does not do what the node means.
// Returns null for every other operator.
StepPtr make_builtin_step(const Node& node, const Operands& operands, const Registers& results);

// ---- numbers, lists, properties of tensors (scalar.cpp): operators too small for a call.
// Returns null for every other operator.
StepPtr make_scalar_step(const Node& node, const Operands& operands, const Registers& results);
bool has_scalar_step(const Op& op);

// ---- the caller's autocast (autocast.cpp), in plans that switch it off
// Makes a step that runs `step` with autocast on.
StepPtr make_autocast_step(StepPtr step);
// Makes the step of `sconce::autocast_cast`.
StepPtr make_autocast_cast_step(const Node& node, Operands operands, Registers results);

// ---- open sizes (symbolic_sizes.cpp), in plans that a tracer with symbols runs
// Makes a step that reads sizes as c10::SymInt and computes with them. Where `step` cannot take such a number, it gets what
// the number is in this run, which is a guard.
StepPtr make_symbolic_sizes_step(const Node& node, Operands operands, Registers results, StepPtr step);
// Makes a step that replaces such numbers by their values in this run.
StepPtr make_close_sizes_step(Operands operands);

// ---- constructs of the language (language.cpp)
// Refuses node kinds that are not supported yet.
Expected<StepPtr> make_language_step(const Node& node, Operands operands, Registers results);

// ---- delegates (delegate.cpp): a backend's kernel. `operators` is the plan of the subgraph's operators, whose results are
// the reference.
StepPtr make_delegate_step(const Node& node, Operands operands, Registers results, std::unique_ptr<const Plan> operators);

// ---- differentiable subgraphs (differentiable.cpp): the forward plan, and one autograd node
StepPtr make_differentiable_step(const Node& node, Operands operands, Registers results,
                                 std::shared_ptr<const DifferentiableFunction> function);

// ---- calls (call.cpp): functions and methods that were not inlined, `with` blocks, fork and wait, sorting of objects.
bool is_call(const Node& node);
// Requires is_call(node). `callees` may be null for a graph without calls.
Expected<StepPtr> make_call_step(const Node& node, Operands operands, Registers results, Callees* callees);

// ---- profiling (profile.cpp): steps that add to the profile, which must outlive them.
StepPtr make_profile_values_step(Profile& profile, std::vector<std::pair<const Value*, Register>> values);
StepPtr make_profile_run_step(Profile& profile);
StepPtr make_profile_branch_step(Profile& profile, const Node& branch, bool taken);
StepPtr make_profile_loop_step(Profile& profile, const Node& loop);
StepPtr make_profile_iteration_step(Profile& profile, const Node& loop);

// ---- control flow (control.cpp): positions are indices of steps.
// Moves the operands to the registers, all at once: a register may be both source and target.
StepPtr make_move_step(Operands operands, Registers targets);
// Ends the plan, with the operands on the frame's stack.
StepPtr make_return_step(Operands operands);
// Empties registers.
StepPtr make_drop_step(Registers registers);

// Steps that jump. Their target is set after lowering knows it.
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

// Makes a loop's head. `counter`, `limit` and `condition` are registers of the loop. The step jumps to the target if the
// limit is reached or the condition is false; else it writes the iteration's number to `iteration` and increments the
// counter.
JumpingStepPtr make_loop_head_step(Register counter, Register limit, Register condition, Register iteration);

}  // namespace sconce
