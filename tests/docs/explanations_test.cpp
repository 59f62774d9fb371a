// The tables of reasons in docs/performance.md and docs/training.md are what `sconce explain` says.
#include "tests/docs/pages.h"

#include <sconce/explanation.h>

#include <gtest/gtest.h>

#include <regex>

namespace sconce::testing {
namespace {

// Returns a row for each reason from the first to the last. Pages that a remedy names become links.
template <class Reason>
std::string table_of(Reason last) {
  std::string text;
  for (int number = 0; number <= static_cast<int>(last); ++number) {
    const auto reason = static_cast<Reason>(number);
    const std::string remedy =
        std::regex_replace(std::string(remedy_for(reason)), std::regex("docs/(\\w+\\.md)"), "[$1]($1)");
    text += (number == 0 ? "| " : "\n| ") + std::string(to_string(reason)) + " | " + remedy + (remedy.empty() ? "|" : " |");
  }
  EXPECT_STREQ(to_string(static_cast<Reason>(static_cast<int>(last) + 1)), "unknown") << "is there a reason after the last?";
  return text;
}

const char* const kOpening = "| reason | remedy |\n|---|---|\n";

TEST(ReasonTables, SayWhatExplainSaysOfSteps) {
  expect_part("docs/performance.md", kOpening, "\n\n", table_of(NotPrepared::kOptimizationOff));
}

TEST(ReasonTables, SayWhatExplainSaysOfGradients) {
  expect_part("docs/training.md", kOpening, "\n\n", table_of(NotDifferentiated::kNoGradient));
}

}  // namespace
}  // namespace sconce::testing
