// How much of models is captured, in tests that run many of them.
#pragma once

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace sconce::testing {

// Steps of plans: in captured ranges, and others.
struct CapturedShare {
  // Which steps of a plan count.
  using Count = size_t TraitsExplanation::*;

  size_t captured = 0;
  size_t others = 0;
  uint64_t replays = 0;
  std::map<std::string, size_t> reasons;  // why steps and runs are not captured

  void add(const PlanExplanation& plan, Count count);
};

// Runs a model, and adds its plans to the share. Returns why it cannot run here; empty if it did.
using RunModel = std::function<std::string(const std::string& name, const Options& options, CapturedShare& share)>;

// Runs the models whose files have at most so many bytes (SCONCE_MODEL_BYTES has the last word), or the one that
// SCONCE_MODELS names, and prints the shares. Expects replays in more than one of `fraction` models.
void run_models(const Options& options, uintmax_t file_limit, size_t fraction, const RunModel& run);

}  // namespace sconce::testing
