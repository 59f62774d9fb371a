// sconce op: what is known of operators.
#include "tests/tools/sconce_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;

TEST(OpCommand, TellsWhereAnOperatorIsAndWhatItDoes) {
  const ProgramResult silu = sconce({"op", "silu_"});
  EXPECT_EQ(silu.exit_code, 0) << silu.err;
  for (const char* part : {"aten::silu_(Tensor(a!) self) -> Tensor(a!)", "src/ops/rows/activation.cpp", "writes `self`",
                           "in place of", "aten::silu", "by the row's text", "an element rule"}) {
    EXPECT_THAT(silu.out, HasSubstr(part));
  }
  const ProgramResult sum = sconce({"op", "aten::sum.dim_IntList"});
  EXPECT_THAT(sum.out, HasSubstr("a reduction"));
  EXPECT_THAT(sum.out, ::testing::Not(HasSubstr("aten::sum.out"))) << "one overload alone";
  EXPECT_THAT(sconce({"op", "bernoulli_"}).out, HasSubstr("draws random numbers"));
  EXPECT_THAT(sconce({"op", "resize_"}).out, HasSubstr("may change sizes or strides in place"));
}

TEST(OpCommand, PrintsJson) {
  const ProgramResult result = sconce({"op", "add", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto overloads = nlohmann::json::parse(result.out);
  ASSERT_GT(overloads.size(), 1U);
  EXPECT_TRUE(overloads[0].contains("schemas") && overloads[0].contains("effects") && overloads[0].contains("gradient"));
}

TEST(OpCommand, NamesTheNearestOperator) { expect_usage_error({"op", "sillu"}, "no operator 'sillu'; did you mean 'silu'"); }

TEST(OpCommand, KnowsOperatorsOfALibrary) {
  const ProgramResult result = sconce({"op", "sconce_test::twice", "--ops-library", plugin_file("custom_operators")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("none: what LibTorch's registry says"));
}

}  // namespace
}  // namespace sconce::tests
