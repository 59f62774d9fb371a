// The time of a model's steps and source lines, for `sconce bench --profile`.
#pragma once

#include "report/json.h"
#include "tools/sconce/bench/machine_limits.h"
#include "tools/sconce/bench/measure.h"

#include <sconce/options.h>
#include <sconce/step_trace.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

struct StepProfile {
  uint64_t calls = 0;
  bool trains = false;                  // the calls are training steps
  bool is_one_plan = false;             // each of them is recorded as a whole, and one plan runs it
  double seconds = 0;                   // of all calls, without copies of the arguments
  uint64_t dropped_steps = 0;           // of calls that did not fit into the trace
  std::vector<StepTiming> steps;        // those that took the most time first
  std::optional<MachineLimits> limits;  // with the threads of the calls; nothing for devices other than the CPU
};

// `progress` is called this often.
constexpr size_t kPiecesOfProfile = 10;

// Calls the model on this thread, or trains it, until `settings.seconds` are over or the trace is full, after calls that are
// not in the trace. A training step is a TrainStep's if one plan runs that, else forward and backward have their own plans.
// Writes the trace to `trace_out`, unless it is empty. Throws what the model throws.
StepProfile profile_steps(const MeasureSettings& settings, const Options& options, const std::string& trace_out,
                          const std::function<void()>& progress);

// One line of the model's source, or all steps that have none.
struct LineTiming {
  std::string source;  // "model.py:12", may be empty
  std::vector<std::string> ops;
  uint64_t runs = 0;
  uint64_t prepared_runs = 0;
  double seconds = 0;
  double backward_seconds = 0;  // of these, in backward plans
};
// Returns the lines, those that took the most time first.
std::vector<LineTiming> lines_of(const std::vector<StepTiming>& steps);

// Prints the slowest steps and lines, and the rest of each as a sum. A recorded step has operators in place of lines.
// Shares of training are shares of the whole step: forward, loss, backward and optimizer.
std::string to_text(const StepProfile& profile);
Json to_json(const StepProfile& profile);

}  // namespace sconce::cli
