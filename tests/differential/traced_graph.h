// TracedGraph: a function of values of any type, traced as a function of the tensors in them.
#pragma once

#include "tests/differential/observed_call.h"

#include <sconce/trace.h>

#include <vector>

namespace sconce::testing {

class TracedGraph {
 public:
  // Other values than tensors are those of `arguments` in each run.
  TracedGraph(RunGraph run, std::vector<c10::IValue> arguments);

  // Runs the traced function on the tensors in the arguments on the stack.
  void run(torch::jit::Stack& stack) const;
  // Returns whether a plan serves the calls.
  bool is_replayed() const;

 private:
  const RunGraph run_;
  const std::vector<c10::IValue> arguments_;
  mutable std::vector<c10::IValue> results_;  // of the last run of the function, whose other values hold for its plan
  TracedFunction traced_;
};

}  // namespace sconce::testing
