// Subgraphs that a backend of the user's computes.
#include "tests/support/graphs.h"

#include "ir/text/print.h"
#include "pipeline/partition_for_backend.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <atomic>

namespace sconce {
namespace {

using testing::count_nodes;
using testing::graph_of;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;

// relu, neg and mul; computes nothing by itself.
bool is_supported(const Node& node) {
  return node.kind() == aten::relu || node.kind() == aten::neg || node.kind() == aten::mul || node.kind() == aten::t;
}

Options claiming(SubgraphKernel kernel, size_t min_nodes = 2) {
  Options options;
  options.passes().after(Stage::kOptimize, "backend",
                         partition_for_backend("backend", {.supports = is_supported,
                                                           .compile = [kernel](const auto&) { return kernel; },
                                                           .min_nodes = min_nodes}));
  return options;
}

std::string delegate_text(const std::string& text, size_t min_nodes = 2) {
  const auto graph = graph_of(text);
  const auto compile = [](const auto&) { return SubgraphKernel([](auto) { return std::vector<c10::IValue>(); }); };
  partition_for_backend("backend", {is_supported, compile, min_nodes})(*graph);
  return print(*graph, {.locations = false});
}

std::string plan_text(GraphExecutor& executor) {
  std::string text;
  for (const PlanExplanation& plan : executor.explain().plans) {
    text += plan.text;
  }
  return text;
}

constexpr const char* kChain =
    "graph(%a : Tensor, %b : Tensor):\n"
    "  %n : Tensor = aten::neg(%a)\n"
    "  %m : Tensor = aten::mul(%n, %b)\n"
    "  %r : Tensor = aten::relu(%m)\n"
    "  %t : Tensor = aten::tanh(%r)\n"
    "  return (%t, %m)\n";

std::vector<c10::IValue> chain(c10::ArrayRef<c10::IValue> operands) {
  const at::Tensor product = operands[0].toTensor().neg().mul(operands[1].toTensor());
  return {product, product.relu()};
}

TEST(PartitionForBackend, LeavesAnUnrelatedGraphAlone) {
  const auto graph = graph_of("graph(%a : Tensor):\n  %b : Tensor = aten::tanh(%a)\n  return (%b)\n");
  const std::string before = print(*graph);
  EXPECT_FALSE(partition_for_backend("backend", {is_supported, [](const auto&) { return SubgraphKernel(); }})(*graph));
  EXPECT_EQ(print(*graph), before);
}

TEST(PartitionForBackend, CutsOutWhatIsSupported) {
  EXPECT_EQ(delegate_text(kChain),
            "graph(%a : Tensor,\n"
            "      %b : Tensor):\n"
            "  %m : Tensor, %r : Tensor = sconce::delegate_0[backend=\"backend\"](%a, %b)\n"
            "  %t : Tensor = aten::tanh(%r)\n"
            "  return (%t, %m)\n"
            "with sconce::delegate_0 = graph(%a : Tensor,\n"
            "      %b : Tensor):\n"
            "  %n : Tensor = aten::neg(%a)\n"
            "  %m : Tensor = aten::mul(%n, %b)\n"
            "  %r : Tensor = aten::relu(%m)\n"
            "  return (%m, %r)\n");
}

TEST(PartitionForBackend, TakesConstantsWithIt) {
  const std::string text = delegate_text(
      "graph(%a : Tensor):\n"
      "  %two : int = prim::Constant[value=2]()\n"
      "  %m : Tensor = aten::mul(%a, %two)\n"
      "  %r : Tensor = aten::relu(%m)\n"
      "  return (%r)\n");
  EXPECT_THAT(text, HasSubstr("sconce::delegate_0[backend=\"backend\"](%a)\n"));
  EXPECT_THAT(text, HasSubstr("with sconce::delegate_0 = graph(%a : Tensor):\n"
                              "  %two : int = prim::Constant[value=2]()\n"));
}

TEST(PartitionForBackend, EndsAtEffectsAndAtUsesInBetween) {
  const char* written =
      "graph(%a : Tensor, %b : Tensor):\n"
      "  %n : Tensor = aten::neg(%a)\n"
      "  %w : Tensor = aten::tanh_(%a)\n"
      "  %r : Tensor = aten::relu(%n)\n"
      "  return (%r)\n";
  EXPECT_THAT(delegate_text(written), Not(HasSubstr("claimed")));
  const char* used =
      "graph(%a : Tensor):\n"
      "  %n : Tensor = aten::neg(%a)\n"
      "  %t : Tensor = aten::tanh(%n)\n"
      "  %r : Tensor = aten::relu(%t)\n"
      "  return (%r)\n";
  EXPECT_THAT(delegate_text(used), Not(HasSubstr("claimed")));
  const char* used_within =
      "graph(%a : Tensor, %c : bool):\n"
      "  %n : Tensor = aten::neg(%a)\n"
      "  %i : Tensor = prim::If(%c)\n"
      "    block0():\n"
      "      -> (%n)\n"
      "    block1():\n"
      "      -> (%a)\n"
      "  %r : Tensor = aten::relu(%i)\n"
      "  return (%r)\n";
  EXPECT_THAT(delegate_text(used_within), Not(HasSubstr("claimed")));
}

TEST(PartitionForBackend, StepsOverWhatIsIndependent) {
  const std::string text = delegate_text(
      "graph(%a : Tensor, %b : Tensor):\n"
      "  %n : Tensor = aten::neg(%a)\n"
      "  %t : Tensor = aten::tanh(%b)\n"
      "  %m : Tensor = aten::mul(%n, %t)\n"
      "  return (%m)\n");
  EXPECT_THAT(text, HasSubstr("  %t : Tensor = aten::tanh(%b)\n"
                              "  %m : Tensor = sconce::delegate_0[backend=\"backend\"](%a, %t)\n"));
}

TEST(PartitionForBackend, TakesViewsOnlyThatNobodyElseUses) {
  const char* inside =
      "graph(%a : Tensor, %b : Tensor):\n"
      "  %v : Tensor = aten::t(%a)\n"
      "  %m : Tensor = aten::mul(%v, %b)\n"
      "  return (%m)\n";
  EXPECT_THAT(delegate_text(inside), HasSubstr("return (%m)\nwith sconce::delegate_0"));
  const char* outside =
      "graph(%a : Tensor, %b : Tensor):\n"
      "  %n : Tensor = aten::neg(%a)\n"
      "  %r : Tensor = aten::relu(%n)\n"
      "  %v : Tensor = aten::t(%r)\n"
      "  %m : Tensor = aten::mul(%v, %b)\n"
      "  return (%m, %v)\n";
  const std::string text = delegate_text(outside);
  EXPECT_THAT(text, HasSubstr("  %v : Tensor = aten::t(%r)\n  %m : Tensor = aten::mul(%v, %b)\n"));
  EXPECT_THAT(text, HasSubstr("%r : Tensor = sconce::delegate_0"));
}

TEST(PartitionForBackend, GoesIntoBlocks) {
  EXPECT_THAT(delegate_text("graph(%a : Tensor, %c : bool):\n"
                            "  %i : Tensor = prim::If(%c)\n"
                            "    block0():\n"
                            "      %n : Tensor = aten::neg(%a)\n"
                            "      %r : Tensor = aten::relu(%n)\n"
                            "      -> (%r)\n"
                            "    block1():\n"
                            "      -> (%a)\n"
                            "  return (%i)\n"),
              HasSubstr("      %r : Tensor = sconce::delegate_0"));
}

TEST(PartitionForBackend, RunsTheKernel) {
  std::atomic<int> calls = 0;
  const Options options = claiming([&](auto operands) {
    ++calls;
    return chain(operands);
  });
  GraphExecutor executor(graph_of(kChain), "f", options);
  const at::Tensor a = at::randn({3, 4});
  const at::Tensor b = at::randn({3, 4});
  for (int call = 1; call <= 3; ++call) {
    torch::jit::Stack stack = {a, b};
    executor.run(stack);
    EXPECT_TRUE(at::equal(stack.at(0).toTensor(), a.neg().mul(b).relu().tanh()));
    EXPECT_TRUE(at::equal(stack.at(1).toTensor(), a.neg().mul(b)));
    EXPECT_EQ(calls, call);
  }
  EXPECT_THAT(plan_text(executor), HasSubstr("[backend]"));
}

TEST(PartitionForBackend, RunsTheOperatorsWhereAGradientIsNeeded) {
  std::atomic<int> calls = 0;
  const Options options = claiming([&](auto operands) {
    ++calls;
    return chain(operands);
  });
  GraphExecutor executor(graph_of(kChain), "f", options);
  const at::Tensor a = at::randn({3}).requires_grad_();
  const at::Tensor b = at::randn({3});
  torch::jit::Stack stack = {a, b};
  executor.run(stack);
  stack.at(1).toTensor().sum().backward();
  EXPECT_TRUE(at::equal(a.grad(), b.neg()));
  EXPECT_EQ(calls, 0);
  const c10::AutoGradMode off(false);
  stack = {a, b};
  executor.run(stack);
  EXPECT_EQ(calls, 1);
}

TEST(PartitionForBackend, LooksForGradientsInListsAndInForwardMode) {
  int calls = 0;
  Options options;
  options.passes().after(
      Stage::kOptimize, "backend",
      partition_for_backend("backend", {.supports = [](const Node& node) { return node.kind() == aten::cat; },
                                        .compile = [&](const auto&) -> SubgraphKernel {
                                          return [&](c10::ArrayRef<c10::IValue> operands) {
                                            ++calls;
                                            const c10::NoGradGuard no_grad;
                                            return std::vector<c10::IValue>{at::cat(operands[0].toTensorVector()).detach()};
                                          };
                                        },
                                        .min_nodes = 1}));
  GraphExecutor executor(graph_of("graph(%a : Tensor, %b : Tensor):\n"
                                  "  %zero : int = prim::Constant[value=0]()\n"
                                  "  %l : Tensor[] = prim::ListConstruct(%a, %b)\n"
                                  "  %c : Tensor = aten::cat(%l, %zero)\n"
                                  "  return (%c)\n"),
                         "f", options);
  const at::Tensor x = at::randn({2});
  torch::jit::Stack stack = {x, at::randn({2}).requires_grad_()};
  executor.run(stack);
  EXPECT_TRUE(stack.front().toTensor().requires_grad());
  EXPECT_EQ(calls, 0);
  stack = {x, x};
  executor.run(stack);
  EXPECT_EQ(calls, 1);
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  stack = {at::_make_dual(x, at::ones({2}), static_cast<int64_t>(level)), x};
  executor.run(stack);
  EXPECT_TRUE(stack.front().toTensor()._fw_grad(level).defined());
  EXPECT_EQ(calls, 1);
  stack.clear();
  torch::autograd::ForwardADLevel::release_idx(level);
}

TEST(PartitionForBackend, UnconnectedOnesAreApart) {
  const std::string text = delegate_text(
      "graph(%a : Tensor, %b : Tensor):\n"
      "  %n : Tensor = aten::neg(%a)\n"
      "  %o : Tensor = aten::neg(%b)\n"
      "  %r : Tensor = aten::relu(%n)\n"
      "  %s : Tensor = aten::relu(%o)\n"
      "  return (%r, %s)\n");
  EXPECT_THAT(text, HasSubstr("  %r : Tensor = sconce::delegate_0[backend=\"backend\"](%a)\n"
                              "  %s : Tensor = sconce::delegate_1[backend=\"backend\"](%b)\n"));
}

TEST(PartitionForBackend, AGraphReadFromItsTextRunsTheOperators) {
  GraphExecutor executor(graph_of(delegate_text(kChain)), "f", Options());
  const at::Tensor a = at::randn({3});
  torch::jit::Stack stack = {a, a};
  executor.run(stack);
  EXPECT_TRUE(at::equal(stack.at(1).toTensor(), a.neg().mul(a)));
  EXPECT_THAT(plan_text(executor), HasSubstr("[backend, whose kernel is not here: its operators run]"));
}

// What was warned about, and the results of two calls.
struct TwoCalls {
  std::vector<std::string> warnings;
  std::string text;
};

TwoCalls run_twice(const SubgraphKernel& kernel) {
  class Recorder final : public c10::WarningHandler {
   public:
    void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
    std::vector<std::string> messages;
  } recorder;
  const c10::WarningUtils::WarningHandlerGuard guard(&recorder);
  GraphExecutor executor(graph_of(kChain), "f", claiming(kernel));
  const at::Tensor a = at::randn({3});
  for (int call = 1; call <= 2; ++call) {
    torch::jit::Stack stack = {a, a};
    executor.run(stack);
    EXPECT_TRUE(at::equal(stack.at(1).toTensor(), a.neg().mul(a)));
  }
  return {recorder.messages, plan_text(executor)};
}

TEST(PartitionForBackend, AKernelMayDeclineACall) {
  int calls = 0;
  const TwoCalls calls_made = run_twice([&](auto) {
    ++calls;
    return std::vector<c10::IValue>();
  });
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(calls_made.warnings.empty());
}

TEST(PartitionForBackend, AKernelThatFailsIsNotCalledAgain) {
  int calls = 0;
  const TwoCalls calls_made = run_twice([&](auto) -> std::vector<c10::IValue> {
    ++calls;
    throw std::runtime_error("out of luck");
  });
  EXPECT_EQ(calls, 1);
  ASSERT_EQ(calls_made.warnings.size(), 1U);
  EXPECT_THAT(calls_made.warnings.front(), HasSubstr("the kernel of backend failed (out of luck)"));
  EXPECT_THAT(calls_made.text, HasSubstr("[backend, which has failed: its operators run]"));
}

TEST(PartitionForBackend, AKernelWithWrongResultsIsNotCalledAgain) {
  const TwoCalls too_few = run_twice([](auto operands) { return std::vector<c10::IValue>{operands[0]}; });
  ASSERT_EQ(too_few.warnings.size(), 1U);
  EXPECT_THAT(too_few.warnings.front(), HasSubstr("it gives 1 results instead of 2"));
  const TwoCalls no_tensor = run_twice([](auto operands) { return std::vector<c10::IValue>{operands[0], 1}; });
  ASSERT_EQ(no_tensor.warnings.size(), 1U);
  EXPECT_THAT(no_tensor.warnings.front(), HasSubstr("it gives a Int where a tensor is due"));
  const TwoCalls undefined = run_twice([](auto operands) { return std::vector<c10::IValue>{operands[0], at::Tensor()}; });
  ASSERT_EQ(undefined.warnings.size(), 1U);
  const TwoCalls no_exception = run_twice([](auto) -> std::vector<c10::IValue> { throw 3; });
  ASSERT_EQ(no_exception.warnings.size(), 1U);
  EXPECT_THAT(no_exception.warnings.front(), HasSubstr("a value of type int"));
}

TEST(PartitionForBackend, AnErrorOfTheModelsIsRaisedAsTheOperatorsRaiseIt) {
  int calls = 0;
  GraphExecutor executor(graph_of(kChain), "f", claiming([&](auto operands) {
                           ++calls;
                           return chain(operands);
                         }));
  torch::jit::Stack stack = {at::ones({2}), at::ones({3})};
  EXPECT_THAT(message_of([&] { executor.run(stack); }), HasSubstr("The size of tensor a (2) must match"));
  stack = {at::ones({2}), at::ones({2})};
  executor.run(stack);
  EXPECT_EQ(calls, 2) << "the kernel is not to blame";
}

TEST(PartitionForBackend, ABackendThatThrowsWhileItCompilesIsLeftOut) {
  Options options;
  options.passes().after(
      Stage::kOptimize, "backend",
      partition_for_backend("backend", {.supports = is_supported, .compile = [](const auto&) -> SubgraphKernel {
                                          throw std::runtime_error("no device");
                                        }}));
  options.passes().reproducer_folder("");
  GraphExecutor executor(graph_of(kChain), "f", options);
  torch::jit::Stack stack = {at::ones({2}), at::ones({2})};
  executor.run(stack);
  EXPECT_TRUE(at::equal(stack.at(1).toTensor(), -at::ones({2})));
  const Explanation explanation = executor.explain();
  ASSERT_EQ(explanation.refusals.size(), 1U);
  EXPECT_EQ(explanation.refusals.front().what, "pass backend");
  EXPECT_EQ(explanation.refusals.front().reason, "threw an exception: no device");
}

}  // namespace
}  // namespace sconce
