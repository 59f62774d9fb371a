#include "tools/sconce/values/spec_sweep.h"
#include "tests/tools/sconce_program.h"
#include "tools/sconce/report/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sconce::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Specs = std::vector<std::string>;

TEST(SpecSweep, HasOneCallWithoutARange) {
  EXPECT_THAT(cli::expand_sweep({}), ElementsAre(Specs{}));
  const Specs specs = {"float32[1,3]", "int64[4]=0..9", "[int64[2]=0..9, 3]", "\"1..2\"", "bad["};
  EXPECT_THAT(cli::expand_sweep(specs), ElementsAre(specs));
}

TEST(SpecSweep, MultipliesAddsOrCounts) {
  EXPECT_THAT(cli::expand_sweep({"float32[1..10:x3,2]"}),
              ElementsAre(Specs{"float32[1,2]"}, Specs{"float32[3,2]"}, Specs{"float32[9,2]"}));
  EXPECT_THAT(cli::expand_sweep({"float32[5, 0..5:+2]"}),
              ElementsAre(Specs{"float32[5, 0]"}, Specs{"float32[5, 2]"}, Specs{"float32[5, 4]"}));
  EXPECT_THAT(cli::expand_sweep({"float32[7..8]"}), ElementsAre(Specs{"float32[7]"}, Specs{"float32[8]"}));
  EXPECT_THAT(cli::expand_sweep({"float32[9223372036854775807..9223372036854775807:x2]"}).size(), 1U) << "no overflow";
}

TEST(SpecSweep, RangesAdvanceTogether) {
  EXPECT_THAT(cli::expand_sweep({"float32[1..2,1..4:x4]", "(int64[3..4]=0..9, 1)"}),
              ElementsAre(Specs{"float32[1,1]", "(int64[3]=0..9, 1)"}, Specs{"float32[2,4]", "(int64[4]=0..9, 1)"}));
}

TEST(SpecSweep, NamesARangeThatIsWrong) {
  const auto expect_refused = [](const std::string& spec, const std::string& why) {
    try {
      cli::expand_sweep({spec});
      ADD_FAILURE() << spec << " was taken";
    } catch (const cli::UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(why)) << spec;
    }
  };
  expect_refused("float32[1..]", "--input 'float32[1..]': 1..: not a range");
  expect_refused("float32[..3]", "..3: not a range");
  expect_refused("float32[1..8:x1]", "1..8:x1: not a range");
  expect_refused("float32[1..8:+0]", "1..8:+0: not a range");
  expect_refused("float32[1..8:2]", "1..8:2: not a range");
  expect_refused("float32[8..1]", "8..1: it has no end, or is empty");
  expect_refused("float32[0..8:x2]", "0..8:x2: it has no end, or is empty");
  expect_refused("float32[1..1000000]", "more than 1000 sizes");
  expect_refused("float32[1..2,1..3]", "1..3: 3 sizes, where another range has 2; ranges advance together");
}

TEST(CommandLineBench, MeasuresEachSizeAndNumberOfThreads) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "m.pt", "def forward(self, x: Tensor):\n    return x + 1\n");
  const Specs arguments = {"bench", model,       "--input", "float32[1..4:x4,3]", "--threads",
                           "1,2",   "--against", "eager",   "--seconds",          "0.02"};
  const ProgramResult text = sconce(arguments);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("forward(float32[4, 3]), 2 calling threads"));
  EXPECT_THAT(text.out, HasSubstr("\ninputs         threads"));
  EXPECT_THAT(text.out, HasSubstr("all 4 calls"));
  Specs json = arguments;
  json.emplace_back("--json");
  const auto report = json_of(sconce(json));
  const auto& found = report["calls"];
  ASSERT_EQ(found.size(), 4);
  EXPECT_EQ(report["geometric_means"].size(), 1) << "of the one executor beside sconce";
  EXPECT_EQ(found[3]["inputs"], "float32[4, 3]");
  EXPECT_EQ(found[3]["threads"], 2);
  expect_usage_error({"run", model, "--input", "float32[1..2]"}, "a range of sizes is for `sconce bench` alone");
  expect_usage_error({"bench", model, "--input", "float32[2..1]"}, "2..1: it has no end, or is empty");
}

}  // namespace
}  // namespace sconce::tests
