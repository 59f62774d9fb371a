// Views inside of groups: kernels read through them.
#include "tests/fusion/kernel_call.h"
#include "tests/support/graphs.h"

#include "fusion/program/kernel_width.h"
#include "lower/lower.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ViewGroups : public ::testing::Test {
 protected:
  // Compares the plan with kernels and the one without. Returns how many kernels ran.
  size_t runs_of(const std::string& nodes, const std::string& results, const std::vector<c10::IValue>& operands) {
    std::string inputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      inputs += (i == 0 ? "%" : ", %") + std::string(1, static_cast<char>('a' + i)) + " : Tensor";
    }
    const std::string text = "graph(" + inputs +
                             "):\n"
                             "  %zero : int = prim::Constant[value=0]()\n  %one : int = prim::Constant[value=1]()\n"
                             "  %four : int = prim::Constant[value=4]()\n  %none : NoneType = prim::Constant()\n" +
                             nodes + "  return (" + results + ")\n";
    if (text != text_) {
      text_ = text;
      with_kernels_ = plan_with_kernels(text_, kernels_);
      ordinary_ = std::move(*lower(graph_of(text_)));
    }
    const size_t before = kernels_.counts().runs;
    const auto [expected, error] = results_of(*ordinary_, operands);
    std::tie(got_, error_) = results_of(*with_kernels_, operands);
    EXPECT_EQ(error_.empty(), error.empty()) << error_ << error;
    EXPECT_EQ(got_.size(), expected.size());
    for (size_t i = 0; i < got_.size(); ++i) {
      EXPECT_TRUE(agree(got_[i], expected[i], 1e-6)) << text;
      EXPECT_EQ(got_[i].strides(), expected[i].strides()) << text;
    }
    return kernels_.counts().runs - before;
  }
  const at::NoGradGuard no_grad_;
  CountedKernels kernels_{kernel_lanes()};
  std::string text_;
  std::unique_ptr<Plan> with_kernels_;
  std::unique_ptr<Plan> ordinary_;
  std::vector<at::Tensor> got_;
  std::string error_;
};

constexpr const char* kGates =
    "  %sum : Tensor = aten::add(%a, %b, %one)\n  %gates : Tensor[] = aten::chunk(%sum, %four, %one)\n"
    "  %i : Tensor, %f : Tensor, %g : Tensor, %o : Tensor = prim::ListUnpack(%gates)\n"
    "  %1 : Tensor = aten::sigmoid(%f)\n  %2 : Tensor = aten::mul(%1, %c)\n  %3 : Tensor = aten::sigmoid(%i)\n"
    "  %4 : Tensor = aten::tanh(%g)\n  %5 : Tensor = aten::mul(%3, %4)\n  %cell : Tensor = aten::add(%2, %5, %one)\n"
    "  %6 : Tensor = aten::sigmoid(%o)\n  %7 : Tensor = aten::tanh(%cell)\n  %h : Tensor = aten::mul(%6, %7)\n";

TEST_F(ViewGroups, ComputeAnLstmCellAtOnce) {
  for (const int64_t width : {5, 16, 33, 1}) {
    EXPECT_EQ(runs_of(kGates, "%h, %cell", {at::randn({3, 4 * width}), at::randn({4 * width}), at::randn({3, width})}), 1U);
  }
  EXPECT_EQ(kernels_.counts().prepared + kernels_.counts().prepared_again, 4U);
  EXPECT_THAT(with_kernels_->text(), HasSubstr("kernel add chunk sigmoid mul"));
}

// A list of three gates is unpacked as four.
TEST_F(ViewGroups, LeaveErrorsToTheOperator) {
  EXPECT_EQ(runs_of(kGates, "%h, %cell", {at::randn({3, 3}), at::randn({3}), at::randn({3, 1})}), 0U);
  EXPECT_THAT(error_, HasSubstr("Expected 4 elements in a list but found 3"));
}

TEST_F(ViewGroups, ReadOperandsThroughViews) {
  const std::string nodes =
      "  %1 : Tensor = aten::transpose(%a, %zero, %one)\n  %2 : Tensor = aten::unsqueeze(%1, %zero)\n"
      "  %3 : Tensor = aten::select(%b, %one, %four)\n  %4 : Tensor = aten::mul(%2, %3)\n"
      "  %5 : Tensor = aten::slice(%4, %one, %one, %four, %one)\n  %6 : Tensor = aten::exp(%5)\n";
  for (const int64_t width : {7, 5, 32}) {
    EXPECT_EQ(runs_of(nodes, "%6", {at::randn({width, 6}), at::randn({6, 5, width})}), 1U);
  }
  EXPECT_EQ(runs_of(nodes, "%6", {at::randn({0, 6}), at::randn({6, 5, 0})}), 1U);
}

// A view of a broadcast value is no view of its operand, which is smaller.
TEST_F(ViewGroups, ReadBroadcastValuesThroughViews) {
  const std::string nodes =
      "  %1 : Tensor = aten::add(%a, %b, %one)\n  %2 : Tensor = aten::slice(%1, %zero, %one, %four, %one)\n"
      "  %3 : Tensor = aten::transpose(%2, %zero, %one)\n  %4 : Tensor = aten::mul(%3, %three)\n"
      "  %5 : Tensor = aten::relu(%1)\n";
  EXPECT_EQ(
      runs_of("  %three : float = prim::Constant[value=3.]()\n" + nodes, "%4, %5", {at::randn({9}), at::randn({5, 1})}), 1U);
}

// The program and the caller see one memory: such a view stays an operator.
TEST_F(ViewGroups, KeepViewsThatOthersSee) {
  const std::string nodes =
      "  %1 : Tensor = aten::relu(%a)\n  %2 : Tensor = aten::transpose(%1, %zero, %one)\n  %3 : Tensor = aten::exp(%2)\n";
  EXPECT_EQ(runs_of(nodes, "%1, %2, %3", {at::randn({4, 6})}), 2U);
  EXPECT_TRUE(got_[1].is_alias_of(got_[0]));
  EXPECT_FALSE(got_[2].is_alias_of(got_[0]));
}

// Kernels do not read what they reduce of other rows.
TEST_F(ViewGroups, EndAtViewsOfReductions) {
  const std::string nodes =
      "  %1 : Tensor = aten::softmax(%a, %one, %none)\n  %2 : Tensor = aten::neg(%1)\n"
      "  %3 : Tensor = aten::transpose(%2, %zero, %one)\n  %4 : Tensor = aten::exp(%3)\n";
  EXPECT_EQ(runs_of(nodes, "%4", {at::randn({4, 6})}), 2U);
}

// The heads of attention, side by side. Where the operator returns a view, it does.
TEST_F(ViewGroups, CopyWhatViewsRead) {
  const std::string flattened =
      "  %1 : Tensor = aten::transpose(%a, %one, %two)\n  %2 : Tensor = aten::flatten(%1, %two, %last)\n"
      "  %3 : Tensor = aten::matmul(%2, %b)\n";
  const std::string constants = "  %two : int = prim::Constant[value=2]()\n  %last : int = prim::Constant[value=-1]()\n";
  for (const int64_t length : {5, 9, 17}) {
    EXPECT_EQ(runs_of(constants + flattened, "%3", {at::randn({2, 4, length, 8}), at::randn({32, 3})}), 1U);
  }
  EXPECT_EQ(runs_of(constants + flattened, "%3", {at::randn({2, 4, 1, 8}), at::randn({32, 3})}), 0U) << "a view";
  const std::string contiguous =
      "  %1 : Tensor = aten::relu(%a)\n  %2 : Tensor = aten::transpose(%1, %zero, %one)\n"
      "  %3 : Tensor = aten::contiguous(%2, %zero)\n  %4 : Tensor = aten::matmul(%3, %b)\n";
  EXPECT_EQ(runs_of(contiguous, "%4", {at::randn({6, 4}), at::randn({6, 3})}), 2U);
  EXPECT_EQ(runs_of(contiguous, "%4", {at::randn({6, 1}), at::randn({6, 3})}), 1U) << "a view";
  // Channels-last strides of a tensor with one channel, which is contiguous, too.
  const std::string channels_last =
      "  %format : int = prim::Constant[value=2]()\n  %1 : Tensor = aten::unsqueeze(%a, %zero)\n"
      "  %2 : Tensor = aten::unsqueeze(%1, %zero)\n  %3 : Tensor = aten::contiguous(%2, %format)\n";
  EXPECT_EQ(runs_of(channels_last, "%3", {at::randn({1, 3}).t()}), 0U);
}

TEST_F(ViewGroups, ReduceRowsOfViews) {
  const std::string nodes =
      "  %1 : Tensor = aten::mul(%a, %a)\n  %2 : Tensor[] = aten::chunk(%1, %two, %one)\n"
      "  %3 : Tensor, %4 : Tensor = prim::ListUnpack(%2)\n  %5 : Tensor = aten::softmax(%3, %one, %none)\n"
      "  %6 : Tensor = aten::mul(%5, %4)\n";
  for (const int64_t width : {2, 14, 70}) {
    EXPECT_EQ(runs_of("  %two : int = prim::Constant[value=2]()\n" + nodes, "%6", {at::randn({4, width})}), 1U);
  }
}

// The mean of a row of the transposed tensor is no element of a row of the tensor, though there are as many.
TEST_F(ViewGroups, ReadNoWeightsThatRowsAreReducedTo) {
  const std::string nodes =
      "  %eps : float = prim::Constant[value=1e-05]()\n  %false : bool = prim::Constant[value=0]()\n"
      "  %l : int[] = prim::Constant[value=[8]]()\n  %last : int[] = prim::Constant[value=[-1]]()\n"
      "  %1 : Tensor = aten::t(%a)\n  %2 : Tensor = aten::mean(%1, %last, %false, %none)\n"
      "  %3 : Tensor = aten::layer_norm(%a, %l, %2, %2, %eps, %false)\n"
      "  %4 : Tensor = aten::rms_norm(%3, %l, %2, %eps)\n";
  for (const int64_t rows : {1, 3, 8}) {
    EXPECT_EQ(runs_of(nodes, "%4", {at::randn({rows, 8})}), 0U);
  }
}

// A kernel of rows computes the norm, and views of what it computes are made outside.
TEST_F(ViewGroups, ReadPartsThatAreCutOutside) {
  const std::string nodes =
      "  %l : int[] = prim::ListConstruct(%eight)\n  %true : bool = prim::Constant[value=1]()\n"
      "  %1 : Tensor = aten::layer_norm(%a, %l, %none, %none, %eps, %true)\n"
      "  %2 : Tensor[] = aten::chunk(%1, %four, %one)\n"
      "  %3 : Tensor, %4 : Tensor, %5 : Tensor, %6 : Tensor = prim::ListUnpack(%2)\n"
      "  %7 : Tensor = aten::mul(%3, %4)\n  %8 : Tensor = aten::mul(%5, %6)\n  %9 : Tensor = aten::add(%7, %8, %one)\n";
  EXPECT_EQ(runs_of("  %eight : int = prim::Constant[value=8]()\n"
                    "  %eps : float = prim::Constant[value=1e-05]()\n" +
                        nodes,
                    "%9", {at::randn({3, 8})}),
            1U);
}

}  // namespace
}  // namespace sconce::testing
