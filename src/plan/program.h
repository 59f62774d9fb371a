// Program: a graph that a plan runs as one unit, such as a called function or the body of a fork.
#pragma once

#include <ATen/core/stack.h>

namespace sconce {

// A program chooses its plan for each run, by the arguments and by the thread's state (grad mode, autocast).
class Program {
 public:
  virtual ~Program() = default;
  // Replaces the arguments on top of the stack by the results. Any thread may call it. Throws what the graph throws.
  virtual void run(torch::jit::Stack& stack) = 0;
};

}  // namespace sconce
