// Checks one module that many threads call at once.
#pragma once

#include "tools/sconce/check/check_cases.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/check/reference_calls.h"

#include <functional>
#include <string>
#include <vector>

namespace sconce::cli {

// Returns the gradients of a call's outputs.
using GradientsOf = std::function<CallGradients(const CallOutcome& outcome)>;

// Calls and their expected results.
struct ThreadedCalls {
  std::string method;
  std::vector<c10::IValue> arguments;
  uint64_t seed = 0;
  CompareOptions options;
  GradientsOf gradients;  // computes gradients of sconce's outcomes; null: not compared
  GradientsOf reference_gradients;
  bool may_have_state = true;
};

// Lets `settings.threads` threads call the module at once, `settings.calls` times each, and compares every call, with its
// gradients if they are asked for, with one of `reference`, the reference model in LibTorch. Calls whose results depend on
// other calls, because they write the model's state or draw random numbers, are left out with a note. Findings name the
// thread.
void check_threads(const Module& module, const torch::jit::Module& reference, const ThreadedCalls& calls,
                   const CheckSettings& settings, Findings& findings);

}  // namespace sconce::cli
