// Which gradients meet which values in a backward graph, also through memory that it writes.
#include "analysis/gradient_paths.h"
#include "tests/support/graphs.h"

#include <gtest/gtest.h>

#include <vector>

namespace sconce {
namespace {

using testing::graph_of;
using Table = std::vector<Dependence>;

// dx is made of dy and w, and dz of v, which is written to zeros with the gradient of the second result.
const char* const kWrites =
    "graph(%dy : Tensor, %dt : Tensor, %w : Tensor, %v : Tensor):\n"
    "  %zero : int = prim::Constant[value=0]()\n"
    "  %none : NoneType = prim::Constant()\n"
    "  %no : bool = prim::Constant[value=0]()\n"
    "  %dx : Tensor = aten::mul(%dy, %w)\n"
    "  %zeros : Tensor = aten::zeros_like(%v, %none, %none, %none, %none, %none)\n"
    "  %row : Tensor = aten::select(%zeros, %zero, %zero)\n"
    "  %product : Tensor = aten::mul(%dt, %v)\n"
    "  %copied : Tensor = aten::copy_(%row, %product, %no)\n"
    "  %dz : Tensor = aten::neg(%zeros)\n"
    "  return (%dx, %dz)\n";

TEST(GradientPaths, GoThroughWhatIsWritten) {
  const auto graph = graph_of(kWrites);
  EXPECT_EQ(gradients_of_outputs(*graph, 2), (Table{{true, false}, {false, true}}));
  // Rows: dy, dt. Columns: dx, dz.
  EXPECT_EQ(gradient_paths(*graph, 2, 2, 2), (Table{{true, false, false, false}, {false, false, false, true}}));
}

TEST(GradientPaths, OfGradientsThatMeetAtATensorOfForwardAreShared) {
  EXPECT_EQ(gradients_that_share(*graph_of(kWrites), 2), (Table{{true, false}, {false, true}}));
  const auto meet = graph_of(
      "graph(%dy : Tensor, %dt : Tensor, %w : Tensor):\n"
      "  %one : int = prim::Constant[value=1]()\n"
      "  %sum : Tensor = aten::add(%dy, %dt, %one)\n"
      "  %dx : Tensor = aten::mul(%sum, %w)\n"
      "  return (%dx)\n");
  EXPECT_EQ(gradients_that_share(*meet, 2), (Table{{true, true}, {true, true}}));
}

// A value is on the path of a gradient that is written later to the memory that it is read with.
TEST(GradientPaths, LeadOnFromAWriteToALaterRead) {
  const auto graph = graph_of(
      "graph(%dy : Tensor, %w : Tensor):\n"
      "  %one : int = prim::Constant[value=1]()\n"
      "  %sum : Tensor = aten::exp(%w)\n"
      "  %product : Tensor = aten::mul(%dy, %w)\n"
      "  %written : Tensor = aten::add_(%sum, %product, %one)\n"
      "  %dx : Tensor = aten::neg(%sum)\n"
      "  return (%dx)\n");
  EXPECT_EQ(gradients_of_outputs(*graph, 1), (Table{{true}}));
  EXPECT_EQ(gradient_paths(*graph, 1, 1, 1), (Table{{true}}));
}

}  // namespace
}  // namespace sconce
