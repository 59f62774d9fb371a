#include "passes/freeze/fold_batch_norm.h"

#include "tests/support/graphs.h"

#include "ir/text/print.h"
#include "ir/verify/verify.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <gtest/gtest.h>

namespace sconce {
namespace {

using testing::agree;
using testing::count_nodes;

constexpr const char* kConstants = R"(
  %none : NoneType = prim::Constant()
  %false : bool = prim::Constant[value=0]()
  %true : bool = prim::Constant[value=1]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %momentum : float = prim::Constant[value=0.1]()
  %eps : float = prim::Constant[value=1e-05]()
)";

const char* const kNorm =
    "  %z : Tensor = aten::batch_norm(%y, %gamma, %beta, %mean, %var, %false, %momentum, %eps, %false)\n";

// What stands between the constants and `return (%z)`, with the parameters of operator and norm made constants.
struct NormalizedConvolution {
  std::string x = "Tensor";  // type and facts
  std::string body;
  std::string result = "%z";
  at::Tensor w, b, gamma, beta, mean, var;

  std::unique_ptr<Graph> graph() const {
    auto graph = testing::graph_of("graph(%x : " + x +
                                   ", %w : Tensor, %b : Tensor?, %gamma : Tensor?, %beta : Tensor?, %mean : Tensor, %var : "
                                   "Tensor):" +
                                   kConstants + body + "  return (" + result + ")\n");
    size_t index = 1;
    for (const at::Tensor& tensor : {w, b, gamma, beta, mean, var}) {
      Value* constant = tensor.defined()
                            ? graph->insert_constant(tensor, graph->body().first(), c10::TensorType::get())
                            : graph->insert_constant(c10::IValue(), graph->body().first(), c10::NoneType::get());
      constant->set_name("p" + std::to_string(index++));
      graph->inputs()[1]->replace_all_uses_with(constant);
      graph->body().remove_param(1);
    }
    return graph;
  }
};

// A weight of these sizes, and parameters for so many channels.
NormalizedConvolution program(const std::string& body, c10::IntArrayRef weight, int64_t channels,
                              at::ScalarType dtype = at::kDouble) {
  at::manual_seed(3);
  NormalizedConvolution made;
  made.body = body + kNorm;
  made.w = at::randn(weight, at::kDouble).to(dtype);
  made.b = at::randn({channels}, at::kDouble).to(dtype);
  made.gamma = at::randn({channels}, at::kDouble).to(dtype);
  made.beta = at::randn({channels}, at::kDouble).to(dtype);
  made.mean = at::randn({channels}, at::kDouble).to(dtype);
  made.var = (at::rand({channels}, at::kDouble) + 0.5).to(dtype);
  return made;
}

void expect_folded(const NormalizedConvolution& program, const at::Tensor& x, double tolerance = 1e-10) {
  const auto before = program.graph();
  const auto graph = program.graph();
  EXPECT_TRUE(fold_batch_norm(*graph)) << print(*graph);
  EXPECT_EQ(count_nodes(*graph, "aten::batch_norm"), 0) << print(*graph);
  for (const Violation& violation : find_violations(*graph)) {
    ADD_FAILURE() << violation.check << ": " << violation.message;
  }
  EXPECT_TRUE(agree(testing::run(*graph, {x}), testing::run(*before, {x}), tolerance)) << program.body;
  const std::string once = print(*graph);
  EXPECT_FALSE(fold_batch_norm(*graph));
  EXPECT_EQ(print(*graph), once);
}

void expect_left(const NormalizedConvolution& program) {
  const auto graph = program.graph();
  const std::string before = print(*graph);
  EXPECT_FALSE(fold_batch_norm(*graph));
  EXPECT_EQ(print(*graph), before);
}

// `conv2d` of [4, 3, 3, 3] on a batch.
NormalizedConvolution conv2d(at::ScalarType dtype = at::kDouble) {
  NormalizedConvolution made = program(R"(
  %l : int[] = prim::ListConstruct(%one, %one)
  %y : Tensor = aten::conv2d(%x, %w, %b, %l, %l, %l, %one)
)",
                                       {4, 3, 3, 3}, 4, dtype);
  made.x = "Tensor(*, *, *, *)";
  return made;
}

const at::Tensor& image() {
  static const at::Tensor x = at::randn({2, 3, 6, 5}, at::kDouble);
  return x;
}

// ---- what is folded -------------------------------------------------------------------------------------------------

TEST(FoldBatchNorm, FoldsConvolutionsOfOneToThreeDimensionsWithGroupsStridesAndDilation) {
  NormalizedConvolution one = program(R"(
  %l : int[] = prim::ListConstruct(%two)
  %y : Tensor = aten::conv1d(%x, %w, %b, %l, %l, %l, %two)
)",
                                      {6, 2, 3}, 6);
  one.x = "Tensor(*, *, *)";
  expect_folded(one, at::randn({3, 4, 9}, at::kDouble));
  expect_folded(conv2d(), image());
  NormalizedConvolution three = program(R"(
  %l : int[] = prim::ListConstruct(%one, %two, %one)
  %y : Tensor = aten::conv3d(%x, %w, %b, %l, %l, %l, %one)
)",
                                        {2, 2, 2, 1, 2}, 2);
  three.x = "Tensor(*, *, *, *, *)";
  expect_folded(three, at::randn({1, 2, 4, 4, 4}, at::kDouble));
}

TEST(FoldBatchNorm, FoldsConvolutionsWhosePaddingIsAWord) {
  NormalizedConvolution same = program(R"(
  %l : int[] = prim::ListConstruct(%one, %one)
  %same : str = prim::Constant[value="same"]()
  %y : Tensor = aten::conv2d(%x, %w, %b, %l, %same, %l, %one)
)",
                                       {4, 3, 2, 3}, 4);
  same.x = "Tensor(*, *, *, *)";
  expect_folded(same, image());
}

TEST(FoldBatchNorm, FoldsTransposedConvolutionsGroupByGroup) {
  for (const char* groups : {"%one", "%two"}) {
    NormalizedConvolution made = program(std::string(R"(
  %l : int[] = prim::ListConstruct(%two, %two)
  %zero : int = prim::Constant[value=0]()
  %none_left : int[] = prim::ListConstruct(%zero, %zero)
  %ones : int[] = prim::ListConstruct(%one, %one)
  %y : Tensor = aten::conv_transpose2d(%x, %w, %b, %l, %none_left, %none_left, )") +
                                             groups + ", %ones)\n",
                                         {4, 3, 2, 3}, std::string(groups) == "%two" ? 6 : 3);
    made.x = "Tensor(*, *, *, *)";
    expect_folded(made, at::randn({2, 4, 5, 4}, at::kDouble));
  }
}

TEST(FoldBatchNorm, FoldsWhatTracingRecordsForItTakesBatchesAlone) {
  for (const char* transposed : {"%false", "%true"}) {
    const bool is_transposed = std::string(transposed) == "%true";
    const NormalizedConvolution made =
        program(std::string(R"(
  %zero : int = prim::Constant[value=0]()
  %ones : int[] = prim::ListConstruct(%one, %one)
  %zeros : int[] = prim::ListConstruct(%zero, %zero)
  %y : Tensor = aten::_convolution(%x, %w, %b, %ones, %zeros, %ones, )") +
                    transposed + ", %zeros, %two, %false, %false, %false, %false)\n",
                is_transposed ? c10::IntArrayRef{4, 2, 3, 3} : c10::IntArrayRef{6, 2, 3, 3}, is_transposed ? 4 : 6);
    expect_folded(made, at::randn({2, 4, 5, 6}, at::kDouble));
  }
  EXPECT_ANY_THROW(at::_convolution(at::ones({3, 5, 5}), at::ones({4, 3, 3, 3}), {}, {1, 1}, {0, 0}, {1, 1}, false, {0, 0},
                                    1, false, false, false, false))
      << "it takes images without a batch now: ask for the rank";
}

TEST(FoldBatchNorm, FoldsLinearWhereRowsAreTheBatch) {
  NormalizedConvolution made = program("  %y : Tensor = aten::linear(%x, %w, %b)\n", {5, 3}, 5);
  made.x = "Tensor(*, *)";
  expect_folded(made, at::randn({4, 3}, at::kDouble));
}

TEST(FoldBatchNorm, FoldsWhereParametersAreNone) {
  for (int present = 0; present < 8; ++present) {
    NormalizedConvolution made = conv2d();
    made.b = (present & 1) != 0 ? made.b : at::Tensor();
    made.gamma = (present & 2) != 0 ? made.gamma : at::Tensor();
    made.beta = (present & 4) != 0 ? made.beta : at::Tensor();
    expect_folded(made, image());
  }
}

TEST(FoldBatchNorm, FoldsEveryFloatingDtypeAndKeepsIt) {
  for (const auto& [dtype, tolerance] :
       {std::pair(at::kFloat, 1e-5), std::pair(at::kBFloat16, 0.25), std::pair(at::kHalf, 0.05)}) {
    expect_folded(conv2d(dtype), image().to(dtype), tolerance);
  }
}

TEST(FoldBatchNorm, KeepsTheOrderOfChannelsInMemory) {
  NormalizedConvolution made = conv2d();
  made.w = made.w.contiguous(at::MemoryFormat::ChannelsLast);
  const auto graph = made.graph();
  ASSERT_TRUE(fold_batch_norm(*graph));
  const Node* conv = testing::find_node(*graph, "aten::conv2d");
  EXPECT_TRUE(conv->input(1)->constant()->toTensor().is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(FoldBatchNorm, FoldsOneNormBehindAnother) {
  NormalizedConvolution made = conv2d();
  made.body += "  %t : Tensor = aten::batch_norm(%z, %beta, %gamma, %mean, %var, %false, %momentum, %eps, %false)\n";
  made.result = "%t";
  expect_folded(made, image());
}

const char* const kCheck = R"(
  %dims : int = aten::dim(%y)
  %four : int = prim::Constant[value=4]()
  %text : str = prim::Constant[value="expected 4D input"]()
  %is_wrong : bool = aten::ne(%dims, %four)
  prim::If(%is_wrong)
    block0():
      prim::RaiseException(%text, %none)
      -> ()
    block1():
      -> ()
)";

TEST(FoldBatchNorm, BelievesTheCheckOfTheRankThatModulesMake) {
  NormalizedConvolution made = conv2d();
  made.x = "Tensor";
  made.body.insert(made.body.find(kNorm), kCheck);
  expect_folded(made, image());
  const auto graph = made.graph();
  ASSERT_TRUE(fold_batch_norm(*graph));
  EXPECT_ANY_THROW(testing::run(*graph, {at::randn({3, 6, 5}, at::kDouble)}));
  NormalizedConvolution asserted = conv2d();
  asserted.x = "Tensor";
  asserted.body.insert(asserted.body.find(kNorm), R"(
  %dims : int = aten::dim(%y)
  %four : int = prim::Constant[value=4]()
  %text : str = prim::Constant[value="expected 4D input"]()
  %is_right : bool = aten::eq(%dims, %four)
  prim::If(%is_right)
    block0():
      -> ()
    block1():
      prim::RaiseException(%text, %none)
      -> ()
)");
  expect_folded(asserted, image());
}

// As in residual networks, whose sums are made in place.
TEST(FoldBatchNorm, FoldsWhatIsWrittenBehindTheQuestionsForItsSize) {
  NormalizedConvolution made = conv2d();
  made.x = "Tensor";
  made.body.insert(made.body.find(kNorm), kCheck);
  made.body += "  %s : Tensor = aten::add_(%z, %one, %one)\n";
  expect_folded(made, image());
  made.body += "  %n : int = aten::size(%y, %one)\n";
  made.result = "%z, %n";
  expect_left(made);
}

// ---- what is left ---------------------------------------------------------------------------------------------------

TEST(FoldBatchNorm, LeavesImagesThatMayComeWithoutABatch) {
  NormalizedConvolution made = conv2d();
  made.x = "Tensor";
  expect_left(made);
  made.body += kCheck;  // too late
  expect_left(made);
}

TEST(FoldBatchNorm, LeavesResultsThatOthersUse) {
  NormalizedConvolution used = conv2d();
  used.body += "  %r : Tensor = aten::relu(%y)\n";
  used.result = "%z, %r";
  expect_left(used);
  NormalizedConvolution returned = conv2d();
  returned.result = "%z, %y";
  expect_left(returned);
}

TEST(FoldBatchNorm, LeavesNormsThatTrain) {
  NormalizedConvolution training = conv2d();
  training.body.replace(training.body.rfind("%false, %momentum"), 6, "%true");
  expect_left(training);
  NormalizedConvolution without_statistics = conv2d();
  without_statistics.mean = without_statistics.var = at::Tensor();
  expect_left(without_statistics);
}

TEST(FoldBatchNorm, LeavesParametersThatTakeAGradientOrAreWritten) {
  NormalizedConvolution differentiable = conv2d();
  differentiable.gamma.requires_grad_();
  expect_left(differentiable);
  NormalizedConvolution written = conv2d();
  written.body += "  %a : Tensor = aten::add_(%mean, %one, %one)\n";
  expect_left(written);
}

TEST(FoldBatchNorm, LeavesParametersOfOtherDtypesAndSizes) {
  NormalizedConvolution mixed = conv2d(at::kHalf);
  mixed.mean = mixed.mean.to(at::kFloat);
  expect_left(mixed);
  NormalizedConvolution short_one = conv2d();
  short_one.var = at::ones({1}, at::kDouble);
  expect_left(short_one);
}

TEST(FoldBatchNorm, LeavesWhatWouldOverflow) {
  NormalizedConvolution made = conv2d();
  made.var = at::full({4}, -1e-5, at::kDouble);
  expect_left(made);
  NormalizedConvolution large = conv2d(at::kHalf);
  large.gamma = at::full({4}, 6e4, at::kHalf);
  expect_left(large);
}

TEST(FoldBatchNorm, LeavesNormsInBranchesAndBehindChangesOfState) {
  NormalizedConvolution branch = conv2d();
  branch.body.replace(branch.body.find(kNorm), std::string(kNorm).size(),
                      "  %s : Tensor = prim::If(%true)\n    block0():\n    " + std::string(kNorm) +
                          "      -> (%z)\n    block1():\n      -> (%x)\n");
  branch.x = "Tensor(*, *, *, *)";
  branch.result = "%s";
  expect_left(branch);
  NormalizedConvolution seeded = conv2d();
  seeded.body.insert(seeded.body.find(kNorm), "  aten::manual_seed(%one)\n");
  expect_left(seeded);
}

}  // namespace
}  // namespace sconce
