// Backward of a recorded call where some of its results have no gradient.
#include "executor/recorded_calls/recorded_forms.h"
#include "tests/support/graphs.h"

#include "ir/text/print.h"
#include "ir/verify/verify.h"

#include <gtest/gtest.h>

#include <string>

namespace sconce {
namespace {

using testing::graph_of;

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
