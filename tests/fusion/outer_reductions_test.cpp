// Reductions of the first or of middle dimensions, alone and among pointwise operators, beside the operators one by one.
#include "tests/fusion/kernel_call.h"
#include "tests/support/graphs.h"

#include "fusion/group/form_groups.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConstants =
    "  %zero : int = prim::Constant[value=0]()\n  %one : int = prim::Constant[value=1]()\n"
    "  %no : bool = prim::Constant[value=0]()\n  %yes : bool = prim::Constant[value=1]()\n"
    "  %none : NoneType = prim::Constant()\n  %two : int = prim::Constant[value=2]()\n"
    "  %half : float = prim::Constant[value=0.5]()\n  %minus : int = prim::Constant[value=-1]()\n"
    "  %firsts : int[] = prim::Constant[value=[0]]()\n  %seconds : int[] = prim::Constant[value=[1]]()\n"
    "  %twos : int[] = prim::Constant[value=[0, 1]]()\n  %leading : int[] = prim::Constant[value=[1, 0, 2]]()\n"
    "  %channels : int[] = prim::Constant[value=[0, -1, 2]]()\n  %ends : int[] = prim::Constant[value=[0, 2]]()\n"
    "  %twice : int[] = prim::Constant[value=[0, -4]]()\n";

// Later lines have addresses.
std::string first_line_of(const std::string& message) { return message.substr(0, message.find('\n')); }

class OuterReductions : public ::testing::TestWithParam<size_t> {
 protected:
  // Makes plans of a graph with these inputs.
  void make_plans(const std::string& inputs, const std::string& nodes, const std::string& results) {
    text_ = "graph(" + inputs + "):\n" + kConstants + nodes + "  return (" + results + ")\n";
    kernels_ = std::make_unique<CountedKernels>(GetParam());
    with_kernels_ = plan_with_kernels(text_, *kernels_);
    ordinary_ = std::move(*lower(graph_of(text_)));
  }
  // Returns how many kernels ran in the second of two calls: no group is prepared for long if each call is new.
  size_t compare(const std::vector<c10::IValue>& operands, double tolerance) {
    static_cast<void>(results_of(*with_kernels_, operands));
    const size_t before = kernels_->counts().runs;
    const auto [got, error] = results_of(*with_kernels_, operands);
    const auto [expected, expected_error] = results_of(*ordinary_, operands);
    EXPECT_EQ(first_line_of(error), first_line_of(expected_error)) << text_;
    EXPECT_EQ(got.size(), expected.size()) << text_;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].scalar_type(), expected[i].scalar_type()) << text_;
      EXPECT_EQ(got[i].sizes(), expected[i].sizes()) << text_;
      EXPECT_EQ(got[i].strides(), expected[i].strides()) << text_;
      EXPECT_TRUE(at::allclose(got[i], expected[i], tolerance, tolerance, /*equal_nan=*/true))
          << "result " << i << ", of " << operands[0].toTensor().sizes() << operands[0].toTensor().strides() << "\n"
          << text_ << (got[i].to(at::kDouble) - expected[i].to(at::kDouble)).abs().max();
    }
    return kernels_->counts().runs - before;
  }

  const at::NoGradGuard no_grad_;
  std::string text_;
  std::unique_ptr<CountedKernels> kernels_;
  std::unique_ptr<Plan> with_kernels_;
  std::unique_ptr<Plan> ordinary_;
};

// Tensors of 4 dimensions.
std::vector<at::Tensor> layouts(at::ScalarType dtype) {
  const auto made = [&](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble).to(dtype); };
  return {made({5, 6, 7, 40}),
          made({70, 3, 2, 67}),
          made({3, 16, 1, 16}),
          made({1, 4, 1, 5}),
          made({4, 1, 3, 1}),
          made({2, 9, 5, 130}).permute({0, 3, 1, 2}),
          made({6, 5, 4, 33}).permute({3, 2, 1, 0}),
          made({40, 7, 3, 5}).transpose(0, 1),
          made({4, 6, 5, 80}).slice(3, 0, 80, 2),
          made({4, 12, 5, 20}).slice(1, 0, 12, 2),
          made({4, 1, 5, 20}).expand({4, 6, 5, 20}),
          made({1, 6, 1, 1}).expand({4, 6, 5, 20})};
}

TEST_P(OuterReductions, AgreeOnEveryLayout) {
  at::manual_seed(3);
  const char* const calls[] = {
      "aten::sum(%x, DIMS, KEEPS, %none)",  "aten::mean(%x, DIMS, KEEPS, %none)",
      "aten::amax(%x, DIMS, KEEPS)",        "aten::amin(%x, DIMS, KEEPS)",
      "aten::logsumexp(%x, DIMS, KEEPS)",   "aten::var(%x, DIMS, %yes, KEEPS)",
      "aten::std(%x, DIMS, %two, KEEPS)",   "aten::norm(%x, %two, DIMS, KEEPS)",
      "aten::prod(%x, %one, KEEPS, %none)", "aten::linalg_vector_norm(%x, %one, DIMS, KEEPS, %none)"};
  size_t runs = 0;
  size_t calls_made = 0;
  for (const std::string pattern : calls) {
    for (const std::string dims : {"%firsts", "%seconds", "%twos", "%leading", "%channels", "%ends"}) {
      for (const std::string keeps : {"%no", "%yes"}) {
        const auto with = [](std::string text, const std::string& what, const std::string& by) {
          const size_t at = text.find(what);
          return at == std::string::npos ? text : text.replace(at, what.size(), by);
        };
        make_plans("%input : Tensor",
                   "  %x : Tensor = aten::neg(%input)\n  %s : Tensor = " +
                       with(with(pattern, "DIMS", dims), "KEEPS", keeps) + "\n  %r : Tensor = aten::mul(%s, %half)\n",
                   "%r");
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
          for (const at::Tensor& input : layouts(dtype)) {
            runs += compare({input}, dtype == at::kDouble ? 1e-11 : dtype == at::kFloat ? 3e-5 : 2e-2);
            ++calls_made;
          }
        }
      }
    }
  }
  EXPECT_GT(runs * 10, calls_made * 9) << "of " << calls_made;
}

TEST_P(OuterReductions, AgreeOnSpecialNumbers) {
  for (const char* call : {"aten::amax(%x, %firsts, %no)", "aten::amin(%x, %firsts, %no)",
                           "aten::sum(%x, %firsts, %no, %none)", "aten::logsumexp(%x, %firsts, %no)"}) {
    make_plans("%input : Tensor", "  %x : Tensor = aten::neg(%input)\n  %r : Tensor = " + std::string(call) + "\n", "%r");
    at::Tensor input = at::randn({130, 40});
    input.select(1, 0).fill_(std::numeric_limits<float>::infinity());
    input.select(1, 1).fill_(-std::numeric_limits<float>::infinity());
    input[129][2] = std::nan("");
    input[0][3] = std::nan("");
    input[7][4] = std::numeric_limits<float>::infinity();
    input[70][39] = std::nan("");
    EXPECT_EQ(compare({input}, 1e-5), 1U) << call;
  }
}

// What is reduced is a result, too; results of all elements and of columns are computed of the reduced.
TEST_P(OuterReductions, ShareAKernelWithTheirNeighbors) {
  make_plans("%g : Tensor, %y : Tensor",
             "  %a : Tensor = aten::threshold_backward(%g, %y, %zero)\n  %b : Tensor = aten::sum(%a, %firsts, %no, %none)\n",
             "%a, %b");
  EXPECT_EQ(compare({at::randn({70, 83}), at::randn({70, 83})}, 1e-5), 1U);
  EXPECT_EQ(compare({at::randn({1, 7}), at::randn({1, 7})}, 1e-5), 1U);
  make_plans("%x : Tensor, %w : Tensor, %b : Tensor",
             "  %m : Tensor = aten::mean(%x, %firsts, %no, %none)\n  %c : Tensor = aten::sub(%x, %m, %one)\n"
             "  %v : Tensor = aten::var(%x, %firsts, %no, %no)\n  %e : Tensor = aten::add(%v, %half, %one)\n"
             "  %d : Tensor = aten::rsqrt(%e)\n  %s : Tensor = aten::mul(%d, %w)\n  %n : Tensor = aten::mul(%c, %s)\n"
             "  %r : Tensor = aten::add(%n, %b, %one)\n",
             "%r, %m, %s");
  EXPECT_EQ(compare({at::randn({65, 50}), at::randn({50}), at::randn({50})}, 1e-4), 1U);
  EXPECT_EQ(compare({at::randn({3, 5}), at::randn({5}), at::randn({1})}, 1e-4), 1U);
  // A vector beside what is left of the middle has the place of the last dimension, not of a column.
  make_plans("%x : Tensor, %w : Tensor",
             "  %y : Tensor = aten::neg(%x)\n  %m : Tensor = aten::sum(%y, %ends, %no, %none)\n"
             "  %r : Tensor = aten::mul(%m, %w)\n",
             "%r");
  EXPECT_EQ(compare({at::randn({4, 5, 5}), at::randn({5})}, 1e-5), 0U);
}

// Both kinds of reductions, one computed of the other.
TEST_P(OuterReductions, FallApartFromOtherReductions) {
  make_plans("%x : Tensor",
             "  %y : Tensor = aten::softmax(%x, %minus, %none)\n  %z : Tensor = aten::square(%y)\n"
             "  %r : Tensor = aten::sum(%z, %firsts, %no, %none)\n  %q : Tensor = aten::neg(%r)\n",
             "%q");
  EXPECT_EQ(compare({at::randn({30, 20})}, 1e-5), 2U);
}

TEST_P(OuterReductions, LeaveErrorsToTheOperator) {
  make_plans("%x : Tensor", "  %y : Tensor = aten::neg(%x)\n  %r : Tensor = aten::sum(%y, %twice, %yes, %none)\n", "%r");
  EXPECT_EQ(compare({at::randn({2, 3, 4, 5})}, 0), 0U);
  EXPECT_THAT(results_of(*with_kernels_, {at::randn({2, 3, 4, 5})}).second, HasSubstr("appears multiple times"));
  make_plans("%x : Tensor", "  %y : Tensor = aten::neg(%x)\n  %r : Tensor = aten::amax(%y, %firsts, %yes)\n", "%r");
  EXPECT_EQ(compare({at::randn({0, 3})}, 0), 0U);
  EXPECT_EQ(compare({at::randn({3, 0})}, 0), 0U);
}

TEST_P(OuterReductions, SumAsPreciselyAsLibTorch) {
  at::manual_seed(5);
  make_plans("%input : Tensor", "  %x : Tensor = aten::neg(%input)\n  %r : Tensor = aten::sum(%x, %firsts, %no, %none)\n",
             "%r");
  for (const int64_t length : {100, 5000, 200'000}) {
    const at::Tensor input = at::rand({length, 24}) + 1;
    const at::Tensor exact = input.to(at::kDouble).sum(0).neg();
    const auto error_of = [&](const Plan& plan) {
      const at::Tensor result = results_of(plan, {input}).first[0].to(at::kDouble);
      return (result - exact).abs().max().item<double>() / exact[0].abs().item<double>();
    };
    EXPECT_LE(error_of(*with_kernels_), 2 * error_of(*ordinary_) + 0x1p-23) << length;
  }
  EXPECT_GT(kernels_->counts().runs, 0U);
}

TEST_P(OuterReductions, DoNotDependOnTheNumberOfThreads) {
  make_plans("%input : Tensor", "  %x : Tensor = aten::exp(%input)\n  %r : Tensor = aten::sum(%x, %firsts, %no, %none)\n",
             "%r");
  const int threads = at::get_num_threads();
  const at::Tensor input = at::randn({900, 301});
  at::set_num_threads(1);
  const at::Tensor alone = results_of(*with_kernels_, {input}).first[0];
  at::set_num_threads(3);
  EXPECT_TRUE(results_of(*with_kernels_, {input}).first[0].equal(alone));
  at::set_num_threads(threads);
  EXPECT_EQ(kernels_->counts().runs, 2U);
}

INSTANTIATE_TEST_SUITE_P(Lanes, OuterReductions, ::testing::ValuesIn(kernel_widths()),
                         [](const auto& lanes) { return std::to_string(lanes.param); });

// In a backward graph, products stand between a gradient and the sum of it.
TEST(RaiseReductions, MoveASumToWhatItSums) {
  const auto graph = graph_of(
      "graph(%d : Tensor, %y : Tensor, %w : Tensor):\n  %zero : int = prim::Constant[value=0]()\n"
      "  %g : Tensor = aten::threshold_backward(%d, %y, %zero)\n  %i : Tensor = aten::mm(%g, %w)\n"
      "  %t : Tensor = aten::t(%g)\n  %firsts : int[] = prim::Constant[value=[0]]()\n"
      "  %no : bool = prim::Constant[value=0]()\n  %none : NoneType = prim::Constant()\n"
      "  %b : Tensor = aten::sum(%g, %firsts, %no, %none)\n  return (%i, %t, %b)\n");
  EXPECT_TRUE(form_groups(*graph));
  std::vector<std::string> kinds;
  for (const Node* node : graph->body().nodes()) {
    if (node->opcode() != Opcode::kConstant) {
      kinds.push_back(node->kind().toUnqualString());
    }
  }
  EXPECT_THAT(kinds, ::testing::ElementsAre("kernel", "mm", "t"));
}

}  // namespace
}  // namespace sconce::testing
