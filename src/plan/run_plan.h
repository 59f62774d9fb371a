// The run loop.
#pragma once

#include "plan/plan.h"

namespace sconce {

// Replaces the plan's inputs on top of the stack by its outputs.
//
// `may_skip_autograd`: nothing that the plan reads requires a gradient, or grad mode is off; and no transform that uses the
// dispatcher's keys is active.
// Throws what a step throws. The node and its source lines are added to the message of a c10::Error or std::exception. The
// inputs have then been removed from the stack.
void run_plan(const Plan& plan, torch::jit::Stack& stack, bool may_skip_autograd);
// The same with a frame that was taken before.
void run_plan(FrameLease& lease, torch::jit::Stack& stack, bool may_skip_autograd);

}  // namespace sconce
