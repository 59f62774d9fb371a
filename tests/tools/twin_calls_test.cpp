#include "tools/sconce/twin_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sconce::cli {
namespace {

using testing::HasSubstr;

std::vector<Finding> raised(const std::optional<std::string>& got, const std::optional<std::string>& expected) {
  Findings findings;
  findings.begin_case("case 0", "tier0");
  report_raised(got, expected, "call", findings);
  return findings.all();
}

TEST(RaisedCalls, OneSideAloneIsNamed) {
  ASSERT_EQ(raised("bad", std::nullopt).size(), 1);
  EXPECT_EQ(raised("bad", std::nullopt)[0].mismatch.what, "sconce raises, LibTorch does not: bad");
  EXPECT_EQ(raised(std::nullopt, "bad")[0].mismatch.what, "LibTorch raises, sconce does not: bad");
  EXPECT_EQ(raised(std::nullopt, "bad")[0].against, kAgainstTwin);
}

TEST(RaisedCalls, BothSidesWithOneTextDifferFromTheRecordedAnswerOnly) {
  const auto findings = raised("bad", "bad");
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].against, kAgainstRecorded);
  EXPECT_THAT(findings[0].mismatch.what, HasSubstr("both raise, with the same text; the model rejects these inputs: bad"));
}

TEST(RaisedCalls, BothSidesWithDifferentTextsShowThem) {
  const auto findings = raised("bad", "worse");
  ASSERT_EQ(findings.size(), 2);
  EXPECT_THAT(findings[0].mismatch.what, HasSubstr("with different texts"));
  EXPECT_EQ(findings[1].against, kAgainstTwin);
  EXPECT_EQ(findings[1].mismatch.what, "sconce raises: bad; LibTorch raises: worse");
}

}  // namespace
}  // namespace sconce::cli
