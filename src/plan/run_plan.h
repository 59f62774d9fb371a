// The run loop.
#pragma once

#include "plan/plan.h"

namespace sconce {

// Replaces the plan's inputs on top of the stack by its outputs.
//
// Unless all steps run with autograd, no transform that uses the dispatcher's keys may be active, and no argument may be an
// exotic tensor.
// Throws what a step throws. The node and its source lines are added to the message of a c10::Error or std::exception. The
// inputs have then been removed from the stack.
void run_plan(const Plan& plan, torch::jit::Stack& stack, AutogradUse autograd);
// The same with a frame that was taken before.
void run_plan(FrameLease& lease, torch::jit::Stack& stack, AutogradUse autograd);

}  // namespace sconce
