#include <sconce/graph_executor.h>

#include "tests/support/graphs.h"

#include "ir/text/parse.h"
#include "ir/text/print.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

extern "C" int omp_get_max_threads();

namespace sconce {
namespace {

using testing::agree;
using testing::graph_of;
using ::testing::HasSubstr;
using testing::message_of;
using Values = std::vector<c10::IValue>;

const char* const kMulAdd =
    "graph(%a : Tensor, %b : Tensor):\n"
    "  %one : int = prim::Constant[value=1]()\n"
    "  %c : Tensor = aten::mul(%a, %b) # model.py:3:8\n"
    "  %d : Tensor = aten::add(%c, %b, %one) # model.py:4:8\n"
    "  return (%d)\n";

at::Tensor mul_add(GraphExecutor& executor, const at::Tensor& a, const at::Tensor& b) {
  Values stack = {a, b};
  executor.run(stack);
  EXPECT_EQ(stack.size(), 1);
  return stack.at(0).toTensor();
}

TEST(GraphExecutor, RunsOneGraphForManySizesDtypesAndGradStates) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{3}, {2, 3}, {1, 1, 4}, {0}, {}}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kLong}) {
      const at::Tensor a = at::ones(sizes, dtype) * 3;
      const at::Tensor b = at::ones(sizes, dtype) * 2;
      EXPECT_TRUE(agree(mul_add(executor, a, b), a * b + b));
      if (dtype != at::kLong) {
        const at::Tensor x = a.clone().requires_grad_(true);
        const at::Tensor y = mul_add(executor, x, b);
        EXPECT_TRUE(agree(y, x * b + b));
        y.sum().backward();
        EXPECT_TRUE(agree(x.grad(), b));
      }
    }
  }
}

TEST(GraphExecutor, CountsInvocationsHitsAndMisses) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
  for (int i = 0; i < 3; ++i) {
    mul_add(executor, at::ones({2}), at::ones({2}));
  }
  mul_add(executor, at::ones({5}), at::ones({5}));  // same ranks: a hit
  mul_add(executor, at::ones({2, 2}), at::ones({2}));
  const Counters counters = executor.explain().counters;
  EXPECT_EQ(counters.invocations, 5);
  EXPECT_EQ(counters.cache_misses, 2);
  EXPECT_EQ(counters.cache_hits, 3);
  EXPECT_EQ(counters.evictions, 0);
  EXPECT_GE(counters.compiles, 1);
}

TEST(PlanCache, MissesWhenOnlyRequiresGradDiffers) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
  mul_add(executor, at::ones({2}), at::ones({2}));
  mul_add(executor, at::ones({2}).requires_grad_(true), at::ones({2}));
  EXPECT_EQ(executor.explain().counters.cache_misses, 2);
  const c10::AutoGradMode mode(false);
  mul_add(executor, at::ones({2}), at::ones({2}));
  EXPECT_EQ(executor.explain().counters.cache_misses, 3) << "grad mode is part of the spec";
}

TEST(GraphExecutor, EvictsBeyondItsCapacityAndCountsIt) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{}.plan_cache_capacity(2));
  for (int64_t rank = 0; rank < 6; ++rank) {
    const at::Tensor a = at::ones(std::vector<int64_t>(static_cast<size_t>(rank), 2));
    EXPECT_TRUE(agree(mul_add(executor, a, a), a * a + a));
  }
  EXPECT_EQ(executor.explain().counters.evictions, 4);
  EXPECT_EQ(executor.explain().plans.at(0).specs.size(), 2);
}

TEST(GraphExecutor, WithoutOptimisationRunsTheFallbackPlanAndCountsNoMiss) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{}.optimize(false));
  const at::Tensor a = at::rand({3});
  EXPECT_TRUE(agree(mul_add(executor, a, a), a * a + a));
  const Explanation explanation = executor.explain();
  EXPECT_EQ(explanation.counters.invocations, 1);
  EXPECT_EQ(explanation.counters.cache_misses, 0);
  EXPECT_EQ(explanation.counters.cache_hits, 0);
  ASSERT_EQ(explanation.plans.size(), 1);
  EXPECT_EQ(explanation.plans[0].tier, Tier::kGeneric);
  EXPECT_EQ(explanation.plans[0].runs, 1);
}

TEST(GraphExecutor, FewerInputsThanExpectedIsAnErrorThatSaysHowMany) {
  GraphExecutor executor(graph_of(kMulAdd), "my_method", Options{});
  Values stack = {at::ones({2})};
  const std::string message = message_of([&] { executor.run(stack); });
  EXPECT_THAT(message, HasSubstr("my_method expects 2 argument(s) and was given 1"));
  EXPECT_EQ(stack.size(), 1) << "the caller keeps what was given";
  EXPECT_NO_THROW(mul_add(executor, at::ones({2}), at::ones({2})));
}

TEST(GraphExecutor, LeavesValuesBelowTheInputsAlone) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
  Values stack = {"below", at::ones({2}), at::ones({2})};
  executor.run(stack);
  ASSERT_EQ(stack.size(), 2);
  EXPECT_EQ(stack[0].toStringRef(), "below");
  EXPECT_TRUE(agree(stack[1], at::ones({2}) * 2));
}

TEST(GraphExecutor, MayReturnSeveralValuesOrNone) {
  EXPECT_EQ(testing::run("graph(%a : Tensor):\n  return ()\n", {at::ones({1})}).size(), 0);
  const at::Tensor a = at::ones({1});
  const Values twice = testing::run("graph(%a : Tensor):\n  return (%a, %a)\n", {a});
  ASSERT_EQ(twice.size(), 2);
  EXPECT_TRUE(twice[0].toTensor().is_same(a));
  EXPECT_TRUE(twice[1].toTensor().is_same(a));
}

TEST(GraphExecutor, AnErrorNamesTheNodeAndTheModelsLineAndLeavesTheExecutorUsable) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
  for (int i = 0; i < 3; ++i) {
    Values stack = {at::ones({2}), at::ones({3})};
    const std::string message = message_of([&] { executor.run(stack); });
    EXPECT_THAT(message, HasSubstr("must match"));
    EXPECT_THAT(message, HasSubstr("in %c : Tensor = aten::mul(%a, %b)"));
    EXPECT_THAT(message, HasSubstr("model.py:3:8"));
    EXPECT_TRUE(agree(mul_add(executor, at::ones({2}), at::ones({2})), at::ones({2}) * 2));
  }
  EXPECT_EQ(executor.explain().plans.at(0).frames, 1) << "the frame came back after the errors";
}

TEST(GraphExecutor, RefusesAGraphItCannotPlanWithTheNode) {
  auto graph = parse("graph(%a : Tensor):\n  %x : Tensor = mine::thing(%a) # model.py:9:1\n  return (%x)\n",
                     {.require_schemas = false});
  const std::string message = message_of([&] { GraphExecutor(std::move(graph), "forward", Options{}); });
  EXPECT_THAT(message, HasSubstr("sconce cannot run forward"));
  EXPECT_THAT(message, HasSubstr("mine::thing"));
  EXPECT_THAT(message, HasSubstr("model.py:9:1"));
}

TEST(GraphExecutor, RefusesAGraphThatIsNotWellFormed) {
  EXPECT_THAT(message_of([] { GraphExecutor(nullptr, "forward", Options{}); }), HasSubstr("forward: there is no graph"));
  auto graph = graph_of(kMulAdd);
  Node* add = testing::find_node(*graph, "aten::add");
  testing::find_node(*graph, "aten::mul")->set_input(0, add->output());
  EXPECT_THAT(message_of([&] { GraphExecutor(std::move(graph), "forward", Options{}); }),
              HasSubstr("forward: the graph is not well formed (inputs_are_defined_before): "));
}

TEST(GraphExecutor, ExplainsItsPlanPassesAndSpecs) {
  GraphExecutor executor(graph_of(kMulAdd), "forward", Options{});
  mul_add(executor, at::ones({2, 1}), at::ones({2, 1}));
  const Explanation explanation = executor.explain();
  EXPECT_EQ(explanation.method, "forward");
  EXPECT_EQ(explanation.nodes, 3);
  EXPECT_EQ(explanation.passes.front().pass, "specialize_autograd_zero") << "the required passes first";
  EXPECT_EQ(explanation.passes.back().pass, "form_groups") << "what makes kernel nodes last";
  EXPECT_TRUE(explanation.refusals.empty());
  const PlanExplanation& plan = explanation.plans.at(0);
  ASSERT_EQ(plan.specs.size(), 1);
  EXPECT_THAT(plan.specs[0], HasSubstr("Float(*, 1)"));
  EXPECT_EQ(plan.runs, 1);
  EXPECT_EQ(plan.steps, 5) << "their kernel, mul, add, release, return";
  EXPECT_THAT(plan.text, HasSubstr("aten::mul"));
  EXPECT_THAT(plan.text, HasSubstr("# model.py:3:8"));
}

TEST(GraphExecutor, DebugStateHoldsGraphAndEveryPlan) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
  mul_add(executor, at::ones({2}), at::ones({2}));
  const GraphExecutor::DebugState state = executor.debug_state();
  EXPECT_EQ(state.graph, print(executor.graph()));
  EXPECT_THAT(state.graph, HasSubstr("aten::mul(%a, %b)"));
  EXPECT_THAT(state.plans.at(0).text, HasSubstr("aten::add"));
  ASSERT_EQ(state.plans.size(), 1);
  EXPECT_EQ(state.plans[0].specs.size(), 1);
}

TEST(GraphExecutor, ClearCacheForgetsSpecsAndCounters) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
  mul_add(executor, at::ones({2}), at::ones({2}));
  executor.clear_cache();
  Explanation explanation = executor.explain();
  EXPECT_EQ(explanation.counters.invocations, 0);
  EXPECT_EQ(explanation.counters.cache_misses, 0);
  EXPECT_TRUE(explanation.plans.at(0).specs.empty());
  EXPECT_EQ(explanation.plans.at(0).runs, 0);
  mul_add(executor, at::ones({2}), at::ones({2}));
  EXPECT_EQ(executor.explain().counters.cache_misses, 1);
}

TEST(GraphExecutor, LastExecutedGraphIsThisThreadsAndGoesWithItsExecutor) {
  {
    GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
    mul_add(executor, at::ones({2}), at::ones({2}));
    const auto graph = last_executed_graph();
    ASSERT_NE(graph, nullptr);
    EXPECT_THAT(print(*graph), HasSubstr("aten::mul"));
    std::thread([] { EXPECT_EQ(last_executed_graph(), nullptr) << "another thread ran nothing"; }).join();
    GraphExecutor other(graph_of("graph(%a : Tensor):\n  %b : Tensor = aten::tanh(%a)\n  return (%b)\n"), "g", Options{});
    Values stack = {at::ones({1})};
    other.run(stack);
    EXPECT_THAT(print(*last_executed_graph()), HasSubstr("aten::tanh"));
  }
  EXPECT_EQ(last_executed_graph(), nullptr);
}

// A plan may have the address of one that is gone while the graph of that one is still held.
TEST(GraphExecutor, LastExecutedGraphIsNeverThatOfAnExecutorThatIsGone) {
  std::vector<std::shared_ptr<const Graph>> held;
  for (int i = 0; i < 20; ++i) {
    GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
    mul_add(executor, at::ones({2}), at::ones({2}));
    const auto graph = last_executed_graph();
    EXPECT_EQ(std::count(held.begin(), held.end(), graph), 0) << i;
    held.push_back(graph);
  }
}

TEST(GraphExecutor, OperatorsOnANewThreadUseTheNumberOfThreadsThatWasSet) {
  const int before = at::get_num_threads();
  at::set_num_threads(before + 1);
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
  std::thread([&] {
    mul_add(executor, at::ones({2}), at::ones({2}));
    EXPECT_EQ(omp_get_max_threads(), before + 1);
  }).join();
  at::set_num_threads(before);
}

TEST(GraphExecutor, HoldsNoArgumentAndNoLargeResultBetweenRuns) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
  at::Tensor small = at::ones({2});
  mul_add(executor, small, small);
  EXPECT_EQ(small.use_count(), 1);
  at::Tensor a = at::ones({200, 200});
  at::Tensor result = mul_add(executor, a, a);
  EXPECT_EQ(a.use_count(), 1);
  EXPECT_EQ(result.use_count(), 1);
}

TEST(GraphExecutor, ManyThreadsRunItAndEveryCallIsCounted) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{}.plan_cache_capacity(2));
  constexpr int kThreads = 4;
  constexpr int kCalls = 300;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        const at::Tensor a = at::full(std::vector<int64_t>(static_cast<size_t>((i + t) % 4), 2), t + 1.0);
        Values stack = {a, a};
        executor.run(stack);
        wrong += at::equal(stack.at(0).toTensor(), a * a + a) ? 0 : 1;
        if (i % 100 == 99) {
          executor.explain();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong.load(), 0);
  const Counters counters = executor.explain().counters;
  EXPECT_EQ(counters.invocations, kThreads * kCalls);
  EXPECT_EQ(counters.cache_hits + counters.cache_misses, kThreads * kCalls);
  EXPECT_LE(executor.explain().plans.at(0).frames, kThreads);
}

TEST(GraphExecutor, ClearCacheMayRunBesideCalls) {
  GraphExecutor executor(graph_of(kMulAdd), "f", Options{});
  std::atomic<bool> stop{false};
  std::thread clearing([&] {
    while (!stop.load()) {
      executor.clear_cache();
      executor.debug_state();
    }
  });
  for (int i = 0; i < 500; ++i) {
    const at::Tensor a = at::ones(std::vector<int64_t>(static_cast<size_t>(i % 3), 2));
    EXPECT_TRUE(agree(mul_add(executor, a, a), a + a));
  }
  stop = true;
  clearing.join();
}

TEST(Options, RefusesNonsense) {
  EXPECT_THAT(message_of([] { Options{}.plan_cache_capacity(0); }), HasSubstr("at least 1"));
  EXPECT_EQ(message_of([] { Options{}.device("gpu"); }), "no device 'gpu'; there are cpu, cuda and cuda:N");
  EXPECT_EQ(Options{}.device("cuda:1").device(), c10::Device(c10::kCUDA, 1));
}

}  // namespace
}  // namespace sconce
