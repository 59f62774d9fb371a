#include "tests/cuda_graphs/captured_share.h"

#include "tests/support/environment_number.h"
#include "tests/support/model_files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace sconce::testing {
namespace {

// Returns the line of LibTorch's message that says what is wrong.
std::string essence_of(const std::string& message) {
  const size_t error = message.find("Error: ");
  const std::string text = error == std::string::npos ? message : message.substr(error);
  return text.substr(0, text.find('\n'));
}

}  // namespace

void CapturedShare::add(const PlanExplanation& plan, Count count) {
  others += plan.traits.*count;
  for (const NotRecordableExplanation& entry : plan.traits.not_recordable) {
    reasons[entry.op + ": " + to_string(entry.reason)] += entry.steps;
  }
  for (const RecordedExplanation& range : plan.recorded) {
    captured += range.plan.front().traits.*count;
    replays += range.replays;
    for (const auto& uncaptured : range.unrecorded) {
      if (uncaptured.reason != "warm-up" && uncaptured.reason.find("first run") == std::string::npos) {
        reasons[uncaptured.reason] += 1;
      }
    }
  }
}

void run_models(const Options& options, uintmax_t file_limit, size_t fraction, const RunModel& run) {
  const char* const only = std::getenv("SCONCE_MODELS");
  const uintmax_t largest_file = environment_number("SCONCE_MODEL_BYTES", file_limit);
  CapturedShare total;
  size_t with_replays = 0;
  size_t models = 0;
  for (const std::string& name : model_names()) {
    if ((only != nullptr && name != only) || std::filesystem::file_size(model_file(name)) > largest_file) {
      continue;
    }
    CapturedShare share;
    const std::string why_not = run(name, options, share);
    if (!why_not.empty()) {
      std::cout << name << ": left out: " << essence_of(why_not) << "\n";
      continue;
    }
    ++models;
    with_replays += share.replays > 0 ? 1 : 0;
    std::cout << name << ": " << share.captured << " of " << share.captured + share.others << " steps are captured, "
              << share.replays << " replays\n";
    total.captured += share.captured;
    total.others += share.others;
    for (const auto& [reason, count] : share.reasons) {
      total.reasons[reason] += count;
    }
  }
  std::cout << total.captured << " of " << total.captured + total.others << " steps are captured in " << with_replays
            << " of " << models << " models; not captured:\n";
  for (const auto& [reason, count] : total.reasons) {
    std::cout << "  " << count << " " << reason << "\n";
  }
  EXPECT_TRUE(only != nullptr || with_replays > models / fraction);
}

}  // namespace sconce::testing
