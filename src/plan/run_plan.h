// The run loop.
#pragma once

#include "plan/plan.h"

namespace sconce {

// Replaces the plan's inputs on top of the stack by its outputs. `may_skip_autograd`: nothing that the plan reads requires
// a gradient, or grad mode is off, and no transform that works through the dispatcher's keys is active.
// Throws what a step throws; the node and its source lines are added to a c10::Error and to a std::exception's text.
// The caller's inputs are then gone from the stack.
void run_plan(const Plan& plan, torch::jit::Stack& stack, bool may_skip_autograd);
// The same with a frame that was taken before.
void run_plan(FrameLease& lease, torch::jit::Stack& stack, bool may_skip_autograd);

}  // namespace sconce
