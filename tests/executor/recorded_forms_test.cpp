// Backward of a recorded call where some of its results have no gradient.
#include "executor/recorded_calls/recorded_forms.h"
#include "tests/support/graphs.h"

#include "ir/text/print.h"
#include "ir/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sconce {
namespace {

using testing::graph_of;
using ::testing::HasSubstr;
using ::testing::Not;

const char* const kSum =
    "graph(%dy : Tensor, %dz : Tensor, %w : Tensor):\n"
    "  %one : int = prim::Constant[value=1]()\n"
    "  %a : Tensor = aten::mul(%dy, %w)\n"
    "  %b : Tensor = aten::neg(%dz)\n"
    "  %dx : Tensor = aten::add(%a, %b, %one)\n"
    "  return (%dx, %b)\n";

std::string text_of(const std::string& backward, Definedness first, Definedness second) {
  const auto graph = backward_of_form(*graph_of(backward), {first, second});
  if (graph == nullptr) {
    return "none";
  }
  EXPECT_TRUE(find_violations(*graph).empty());
  return print(*graph);
}

TEST(RecordedForms, ComputeNothingOfUndefinedGradients) {
  EXPECT_EQ(text_of(kSum, Definedness::kAll, Definedness::kNone),
            "graph(%dy : Tensor,\n"
            "      %dz : Tensor,\n"
            "      %w : Tensor):\n"
            "  %a : Tensor = aten::mul(%dy, %w)\n"
            "  %7 : Tensor = prim::AutogradZero()\n"
            "  return (%a, %7)\n");
  EXPECT_EQ(text_of(kSum, Definedness::kNone, Definedness::kAll),
            "graph(%dy : Tensor,\n"
            "      %dz : Tensor,\n"
            "      %w : Tensor):\n"
            "  %b : Tensor = aten::neg(%dz)\n"
            "  return (%b, %b)\n");
}

// LibTorch's formula decides what it does with one undefined gradient.
TEST(RecordedForms, AreNoneWhereAnOperatorTakesGradientsOfBothKinds) {
  EXPECT_EQ(text_of("graph(%dy : Tensor, %dz : Tensor):\n  %dx : Tensor = aten::mul(%dy, %dz)\n  return (%dx)\n",
                    Definedness::kAll, Definedness::kNone),
            "none");
  EXPECT_EQ(text_of(kSum, Definedness::kAll, Definedness::kSome), "none");
}

// As in backward of a norm. A write of an undefined gradient goes with it.
TEST(RecordedForms, WriteWhatBackwardHasMade) {
  const char* const kMasked =
      "graph(%dy : Tensor, %dz : Tensor, %w : Tensor, %mask : Tensor):\n"
      "  %zero : int = prim::Constant[value=0]()\n"
      "  %one : int = prim::Constant[value=1]()\n"
      "  %s : Tensor = aten::div(%w, %w)\n"
      "  %m : Tensor = aten::masked_fill_(%s, %mask, %zero)\n"
      "  %a : Tensor = aten::mul(%dy, %m)\n"
      "  %b : Tensor = aten::neg(%dz)\n"
      "  %c : Tensor = aten::masked_fill_(%b, %mask, %zero)\n"
      "  %dx : Tensor = aten::add(%a, %c, %one)\n"
      "  return (%dx)\n";
  const std::string first = text_of(kMasked, Definedness::kAll, Definedness::kNone);
  EXPECT_THAT(first, HasSubstr("aten::masked_fill_(%s"));
  EXPECT_THAT(first, Not(HasSubstr("aten::neg")));
  EXPECT_THAT(first, Not(HasSubstr("masked_fill_(%b")));
  EXPECT_THAT(first, HasSubstr("return (%a)"));
  const std::string second = text_of(kMasked, Definedness::kNone, Definedness::kAll);
  EXPECT_THAT(second, HasSubstr("aten::masked_fill_(%b"));
  EXPECT_THAT(second, HasSubstr("return (%c)"));
  EXPECT_EQ(text_of("graph(%dy : Tensor, %dz : Tensor, %w : Tensor):\n"
                    "  %f : bool = prim::Constant[value=0]()\n"
                    "  %n : NoneType = prim::Constant()\n"
                    "  %s : Tensor = aten::zeros_like(%w, %n, %n, %n, %n, %n)\n"
                    "  %c : Tensor = aten::copy_(%s, %dz, %f)\n"
                    "  %dx : Tensor = aten::mul(%dy, %s)\n"
                    "  return (%dx)\n",
                    Definedness::kAll, Definedness::kNone),
            "none");
}

TEST(RecordedForms, AreNoneWhereBackwardWritesWhatItWasGiven) {
  EXPECT_EQ(text_of("graph(%dy : Tensor, %dz : Tensor, %w : Tensor):\n"
                    "  %one : int = prim::Constant[value=1]()\n"
                    "  %v : Tensor = aten::t(%w)\n"
                    "  %dx : Tensor = aten::add_(%v, %dy, %one)\n"
                    "  return (%dx, %dz)\n",
                    Definedness::kAll, Definedness::kNone),
            "none");
}

}  // namespace
}  // namespace sconce
