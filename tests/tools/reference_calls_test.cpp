#include "tools/sconce/check/reference_calls.h"

#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sconce::cli {
namespace {

using ::testing::HasSubstr;

std::vector<Finding> raised(const std::optional<std::string>& got, const std::optional<std::string>& expected) {
  Findings findings;
  findings.begin_case("case 0", "tier0");
  report_raised(got, expected, "call", /*has_answer=*/true, findings);
  return findings.all();
}

TEST(RaisedCalls, OneSideAloneIsNamed) {
  ASSERT_EQ(raised("bad", std::nullopt).size(), 1);
  EXPECT_EQ(raised("bad", std::nullopt)[0].mismatch.what, "sconce raises, LibTorch does not: bad");
  EXPECT_EQ(raised(std::nullopt, "bad")[0].mismatch.what, "LibTorch raises, sconce does not: bad");
  EXPECT_EQ(raised(std::nullopt, "bad")[0].against, kAgainstReference);
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
  EXPECT_EQ(findings[1].against, kAgainstReference);
  EXPECT_EQ(findings[1].mismatch.what, "sconce raises: bad; LibTorch raises: worse");
}

TEST(RaisedCalls, WithoutARecordedAnswerOneTextIsANote) {
  Findings findings;
  findings.begin_case("case 0", "tier0");
  report_raised("bad", "bad", "backward", /*has_answer=*/false, findings);
  EXPECT_TRUE(findings.all().empty());
  ASSERT_EQ(findings.notes().size(), 1);
  EXPECT_EQ(findings.notes()[0].text, "backward raises, in sconce as in LibTorch: bad");
  report_raised("bad", "worse", "call", /*has_answer=*/false, findings);
  ASSERT_EQ(findings.all().size(), 1);
  EXPECT_EQ(findings.all()[0].against, kAgainstReference);
}

TEST(RaisedCalls, WhatTheyLeaveBehindIsCompared) {
  const char* const source = "def forward(self, x):\n  x.add_(1)\n  self.b.mul_(2)\n  assert x.dim() > 5\n  return x\n";
  const auto make = [&] { return testing::module_of(source, {{"b", at::ones({2})}}); };
  ReferenceModels models(accelerate(make()), make(), "forward", ReferenceModels::State::kCompare);
  const ReferenceModels::Outcomes outcomes = models.call({at::zeros({2})}, /*seed=*/0, 1);
  const auto findings_of = [&](const ReferenceModels::Outcomes& each) {
    Findings findings;
    findings.begin_case("case 0", "tier0");
    models.compare_outcomes(each, {}, /*has_answer=*/false, findings);
    return findings.all();
  };
  ASSERT_TRUE(outcomes.got.error);
  EXPECT_TRUE(findings_of(outcomes).empty());

  outcomes.got.arguments[0].toTensor().add_(1);
  ASSERT_EQ(findings_of(outcomes).size(), 1);
  EXPECT_EQ(findings_of(outcomes)[0].mismatch.path, "inputs[0] after the call");
  models.original().attr("b").toTensor().add_(1);
  EXPECT_EQ(findings_of(outcomes).size(), 2);
}

}  // namespace
}  // namespace sconce::cli
