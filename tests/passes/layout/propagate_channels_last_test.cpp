#include "passes/layout/propagate_channels_last.h"

#include "tests/support/graphs.h"

#include "analysis/layout_use.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <gtest/gtest.h>

namespace sconce {
namespace {

using testing::agree;
using testing::count_nodes;

constexpr const char* kImageConstants = R"(
  %none : NoneType = prim::Constant()
  %false : bool = prim::Constant[value=0]()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %four : int = prim::Constant[value=4]()
  %last : int = prim::Constant[value=-1]()
  %l : int[] = prim::ListConstruct(%one, %one)
  %n : int[] = prim::ListConstruct(%zero, %zero)
)";
// What a norm after a convolution asks first, so that it has four dimensions.
constexpr const char* kImageCheck = R"(
  %dim : int = aten::dim(%y)
  %other : bool = aten::ne(%dim, %four)
   = prim::If(%other)
    block0():
      %message : str = prim::Constant[value="not four"]()
       = prim::RaiseException(%message, %none)
      -> ()
    block1():
      -> ()
)";
const std::string kFirst = "  %y : Tensor = aten::conv2d(%x, %w, %none, %l, %l, %l, %one)\n";
// Who flattens the result and only reads that.
const std::string kEnd = "  %flat : Tensor = aten::flatten(%z, %one, %last)\n  %r : Tensor = aten::tanh(%flat)\n";

const at::Tensor& test_image() {
  static const at::Tensor x = at::randn({2, 3, 6, 5});
  return x;
}

// %w is a weight of [4, 3, 3, 3], %v one of [4, 4, 1, 1].
std::unique_ptr<Graph> graph_with_weights(const std::string& body, const std::string& result = "%r",
                                          at::ScalarType dtype = at::kFloat) {
  auto graph = testing::graph_of(std::string("graph(%x : Tensor, %w : Tensor, %v : Tensor):") + kImageConstants + body +
                                 "  return (" + result + ")\n");
  at::manual_seed(5);
  for (const at::Tensor& weight : {at::randn({4, 3, 3, 3}, dtype), at::randn({4, 4, 1, 1}, dtype)}) {
    Value* constant = graph->insert_constant(weight, graph->body().first(), c10::TensorType::get());
    graph->inputs()[1]->replace_all_uses_with(constant);
    graph->body().remove_param(1);
  }
  return graph;
}

bool is_converted(const Node& convolution) { return convolution.input(1)->constant()->toTensor().stride(1) == 1; }

size_t converted_weights(const Graph& graph) {
  size_t count = 0;
  for_each_node(graph.body(), [&](Node* node) { count += node->kind() == aten::conv2d && is_converted(*node) ? 1 : 0; });
  return count;
}

void expect_same_results(const Graph& before, const Graph& after) {
  const auto layouts_of = [](const std::vector<c10::IValue>& outputs) {
    std::vector<std::vector<int64_t>> strides;
    for (const c10::IValue& output : outputs) {
      strides.push_back(output.toTensor().strides().vec());
    }
    return strides;
  };
  const std::vector<at::Tensor> inputs = {test_image(), test_image().clone(at::MemoryFormat::ChannelsLast),
                                          at::randn({5, 2, 3, 6}).permute({1, 2, 3, 0}), at::randn({0, 3, 6, 5})};
  for (const at::Tensor& x : inputs) {
    const auto expected = testing::run(before, {x});
    const auto got = testing::run(after, {x});
    EXPECT_TRUE(agree(got, expected, 1e-4)) << x.strides();
    EXPECT_EQ(layouts_of(got), layouts_of(expected)) << x.strides();
  }
}

void expect_converted(Graph& graph, size_t weights) {
  const auto before = graph.clone();
  EXPECT_TRUE(propagate_channels_last(graph)) << print(graph);
  EXPECT_EQ(converted_weights(graph), weights) << print(graph);
  for (const Violation& violation : find_violations(graph)) {
    ADD_FAILURE() << violation.check << ": " << violation.message;
  }
  const std::string once = print(graph);
  EXPECT_FALSE(propagate_channels_last(graph));
  EXPECT_EQ(print(graph), once);
  expect_same_results(*before, graph);
}

void expect_left(const std::string& body, const std::string& result = "%r", at::ScalarType dtype = at::kFloat) {
  const auto graph = graph_with_weights(body, result, dtype);
  const std::string before = print(*graph);
  EXPECT_FALSE(propagate_channels_last(*graph)) << body;
  EXPECT_EQ(print(*graph), before);
}

// ---- what is converted ----------------------------------------------------------------------------------------------

TEST(ChannelsLast, ConvertsWeightsOnceWhereFlatteningHidesTheLayout) {
  expect_converted(*graph_with_weights(kFirst + kImageCheck + R"(
  %a : Tensor = aten::relu_(%y)
  %b : Tensor = aten::conv2d(%a, %v, %none, %l, %n, %l, %one)
  %c : Tensor = aten::add_(%b, %b, %one)
  %d : Tensor = aten::hardswish(%c)
  %z : Tensor = aten::max_pool2d(%d, %l, %l, %n, %l, %false)
)" + kEnd),
                   2);
}

TEST(ChannelsLast, CarriesTheLayoutThroughListsPoolsAndProducts) {
  expect_converted(*graph_with_weights(kFirst + kImageCheck + R"(
  %pooled : Tensor = aten::adaptive_avg_pool2d(%y, %l)
  %scale : Tensor = aten::conv2d(%pooled, %v, %none, %l, %n, %l, %one)
  %gate : Tensor = aten::sigmoid(%scale)
  %gated : Tensor = aten::mul(%gate, %y)
  %both : Tensor[] = prim::ListConstruct(%gated, %y)
  %z : Tensor = aten::cat(%both, %one)
)" + kEnd),
                   2);
  // The rank is not known here, and the mean does not ask for it.
  expect_converted(*graph_with_weights(kFirst + R"(
  %dims : int[] = prim::ListConstruct(%last, %two)
  %r : Tensor = aten::mean(%y, %dims, %false, %none)
)"),
                   1);
}

TEST(ChannelsLast, GivesBackTheStridesThatFactsKnow) {
  const auto graph = graph_with_weights(kFirst + R"(
  %z : Float(2, 4, 6, 5, strides=[120, 30, 5, 1], requires_grad=0, device=cpu) = aten::relu(%y)
  %b : Float(2, 4, 6, 5, strides=[120, 30, 5, 1], requires_grad=0, device=cpu) = aten::conv2d(%z, %v, %none, %l, %n, %l, %one)
  %flat : Tensor = aten::softmax(%b, %one, %none)
)",
                                        "%z, %flat");
  const auto before = graph->clone();
  EXPECT_TRUE(propagate_channels_last(*graph));
  EXPECT_EQ(converted_weights(*graph), 2);
  EXPECT_EQ(count_nodes(*graph, "aten::clone"), 2) << print(*graph);
  EXPECT_FALSE(testing::find_value(*graph, "b")->facts()->strides) << print(*graph);
  const auto expected = testing::run(*before, {test_image()});
  const auto got = testing::run(*graph, {test_image()});
  EXPECT_TRUE(agree(got, expected, 1e-4));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].toTensor().strides(), expected[i].toTensor().strides());
  }
  EXPECT_FALSE(propagate_channels_last(*graph));
}

TEST(ChannelsLast, ConvertsTheRestWhereOneConvolutionShowsItsLayout) {
  const auto graph = graph_with_weights(kFirst + kImageCheck + R"(
  %z : Tensor = aten::relu(%y)
  %b : Tensor = aten::conv2d(%x, %w, %none, %l, %l, %l, %one)
)" + kEnd,
                                        "%b, %r");
  expect_converted(*graph, 1);
}

// ---- what is left ---------------------------------------------------------------------------------------------------

TEST(ChannelsLast, LeavesWhatLeavesOrIsSeen) {
  expect_left(kFirst, "%y");
  expect_left(kFirst + "  %z : Tensor = aten::relu(%y)\n", "%z");
  expect_left(kFirst + kImageCheck + "  %z : Tensor = aten::relu(%y)\n" + kEnd, "%z, %r");
  expect_left(kFirst + kImageCheck + "  %r : Tensor = aten::flatten(%y, %one, %last)\n");
  expect_left(kFirst + kImageCheck + "  %s : int[] = aten::stride(%y)\n  %z : Tensor = aten::relu(%y)\n" + kEnd, "%r, %s");
  expect_left(kFirst + kImageCheck + "  %r : Tensor = aten::view(%y, %l)\n");
  expect_left(kFirst + kImageCheck + "  %z : Tensor = aten::softmax(%y, %one, %none)\n" + kEnd);
}

TEST(ChannelsLast, LeavesWhatIsFlattenedToAnUnknownOrder) {
  // It may be one test_image without a batch.
  expect_left(kFirst + "  %z : Tensor = aten::relu(%y)\n" + kEnd);
  expect_left(kFirst + kImageCheck +
              "  %flat : Tensor = aten::flatten(%y, %zero, %one)\n  %r : Tensor = aten::tanh(%flat)\n");
  // The layout of the images of %x is not known.
  expect_left(kFirst + kImageCheck + "  %z : Tensor = aten::add(%y, %x, %one)\n" + kEnd);
}

TEST(ChannelsLast, LeavesWhatIsWrittenBehindTheFlattening) {
  const std::string flat = "  %flat : Tensor = aten::flatten(%y, %one, %last)\n";
  expect_left(kFirst + kImageCheck + flat + "  %c : Tensor = aten::relu_(%y)\n  %r : Tensor = aten::tanh(%flat)\n");
  expect_left(kFirst + kImageCheck + flat + "  %c : Tensor = aten::relu_(%flat)\n  %r : Tensor = aten::tanh(%y)\n");
}

TEST(ChannelsLast, LeavesDoubles) {
  expect_left(kFirst + kImageCheck + "  %z : Tensor = aten::relu(%y)\n" + kEnd, "%r", at::kDouble);
}

// ---- the table ------------------------------------------------------------------------------------------------------

// What flattens the same must be a batch of images in both layouts; what ignores the layout must give the same strides.
TEST(LayoutOps, DoWhatTheTableSaysOfThem) {
  const std::vector<std::string> calls = {
      "aten::relu(%x)",
      "aten::add(%x, %x, %one)",
      "aten::mul(%x, %small)",
      "aten::mul(%small, %x)",
      "aten::adaptive_avg_pool2d(%x, %l)",
      "aten::adaptive_avg_pool2d(%x, %m)",
      "aten::avg_pool2d(%x, %m, %l, %l, %false, %true, %none)",
      "aten::max_pool2d(%x, %m, %l, %l, %l, %false)",
      "aten::batch_norm(%x, %none, %none, %stat, %stat, %false, %eps, %eps, %false)",
      "aten::upsample_nearest2d(%x, %m, %none)",
      "aten::upsample_bilinear2d(%x, %m, %false, %none)",
      "aten::conv_transpose2d(%x, %w, %none, %l, %l, %n, %one, %l)",
      "aten::mean(%x, %m, %false, %none)",
      "aten::sum(%x, %m, %true, %none)",
      "aten::cat(%list, %one)",
      "aten::cat(%list, %two)",
  };
  for (const std::string& call : calls) {
    const auto graph = testing::graph_of(R"(
graph(%x : Tensor, %w : Tensor, %small : Tensor, %stat : Tensor):
  %none : NoneType = prim::Constant()
  %false : bool = prim::Constant[value=0]()
  %true : bool = prim::Constant[value=1]()
  %eps : float = prim::Constant[value=0.5]()
  %one : int = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %two : int = prim::Constant[value=2]()
  %three : int = prim::Constant[value=3]()
  %l : int[] = prim::ListConstruct(%one, %one)
  %m : int[] = prim::ListConstruct(%two, %three)
  %n : int[] = prim::ListConstruct(%zero, %zero)
  %list : Tensor[] = prim::ListConstruct(%x, %x)
  %r : Tensor = )" + call + "\n  return (%r)\n");
    const Node& node = *testing::find_value(*graph, "r")->node();
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{2, 4, 6, 5}, {1, 4, 6, 5}, {3, 4, 3, 3}}) {
      const at::Tensor first = at::randn(sizes);
      const at::Tensor small = at::randn({4, 1, 1});
      const auto run = [&](const at::Tensor& x) {
        return testing::run(*graph, {x, at::randn({4, 2, 3, 3}), small, at::ones({4})})[0].toTensor();
      };
      const at::Tensor a = run(first);
      const at::Tensor b = run(first.clone(at::MemoryFormat::ChannelsLast));
      const size_t index = call.starts_with("aten::mul(%small") ? 1 : 0;
      if (layout_use(node, index) == LayoutUse::kAgnostic) {
        EXPECT_EQ(a.strides(), b.strides()) << call;
      } else {
        EXPECT_EQ(layout_use(node, index), LayoutUse::kPreserving) << call;
        EXPECT_TRUE(a.is_contiguous()) << call;
        EXPECT_TRUE(b.is_contiguous(at::MemoryFormat::ChannelsLast)) << call << b.strides();
        EXPECT_EQ(a.flatten(1).strides(), b.flatten(1).strides()) << call;
      }
    }
  }
}

}  // namespace
}  // namespace sconce
