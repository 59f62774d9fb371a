// StepTrace: every step that ran, with its place in runs, loops and iterations.
#include <sconce/step_trace.h>

#include "tests/support/graphs.h"
#include "tests/support/trace_slices.h"

#include "lower/lower.h"
#include "plan/run_plan.h"
#include "plan/timeline/step_work.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

namespace sconce {
namespace {

using ::testing::HasSubstr;
using testing::named;
using testing::Slice;
using testing::slices_of;

std::unique_ptr<Plan> traceable_plan(const std::string& text) {
  return std::move(*lower(testing::graph_of(text), nullptr, nullptr, {.is_prepared = true}));
}

torch::jit::Stack run_once(const Plan& plan, torch::jit::Stack arguments) {
  run_plan(plan, arguments, AutogradUse::kNone);
  return arguments;
}

const char* const kMixed = R"(graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %a : Tensor = aten::neg(%x) # model.py:3:4
  %b : Tensor = aten::cumsum(%a, %zero, %none) # model.py:4:4
  %c : Tensor = aten::exp(%b)
  return (%c)
)";

TEST(StepTrace, HasEveryStepOfEveryRunAndHowItRan) {
  const at::NoGradGuard no_grad;
  const auto plan = traceable_plan(kMixed);
  const at::Tensor x = at::randn({3});
  const auto expected = run_once(*plan, {x});
  StepTrace trace;
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(testing::agree(run_once(*plan, {x}), expected));
  }
  const std::vector<StepTiming> timings = trace.timings();
  run_once(*plan, {x});  // after the end
  EXPECT_EQ(trace.calls(), 4U);
  ASSERT_EQ(timings.size(), plan->steps().size());
  std::map<std::string, uint64_t> prepared;
  double seconds = 0;
  for (const StepTiming& timing : timings) {
    EXPECT_EQ(timing.runs, 4U) << timing.op;
    prepared[timing.op] = timing.prepared_runs;
    seconds += timing.seconds;
  }
  EXPECT_EQ(prepared, (std::map<std::string, uint64_t>{
                          {"aten::neg", 4}, {"aten::cumsum", 0}, {"release", 0}, {"aten::exp", 4}, {"return", 0}}));
  EXPECT_EQ(timings.front().source, "model.py:3:4");
  EXPECT_THAT(timings.front().node, HasSubstr("%a : Tensor = aten::neg(%x)"));
  EXPECT_LE(seconds, trace.seconds());
  EXPECT_EQ(trace.dropped_steps(), 0U);
  const auto slices = slices_of(trace.json());
  EXPECT_EQ(slices.size(), 4 * (plan->steps().size() + 1));
  for (const Slice& step : named(slices, "aten::neg")) {
    EXPECT_EQ(step.category, "prepared");
    EXPECT_EQ(step.arguments["form"], "prepared");
    EXPECT_EQ(step.arguments["source"], "model.py:3:4");
    EXPECT_EQ(step.arguments["step"], 0);
  }
}

TEST(GraphWork, CountsAKernelAsOneStep) {
  const auto graph = testing::graph_of(R"(graph(%x : Tensor, %n : int):
  %shape : int[] = prim::ListConstruct(%n)
  %z : Tensor = sconce::kernel()
    block0():
      %a : Tensor = aten::exp(%x)
      %b : Tensor = aten::mul(%a, %x)
      -> (%b)
  %flat : Tensor = aten::view(%z, %shape)
  return (%flat)
)");
  const GraphWork work(*graph, {given_input(at::randn({3, 4})), given_input(12)});
  const Node& view = *graph->outputs()[0]->node();
  const Node& kernel = *view.input(0)->node();
  ASSERT_EQ(kernel.opcode(), Opcode::kKernel);
  ASSERT_TRUE(work.of(kernel));
  EXPECT_EQ(work.of(kernel)->flops, 2 * 12) << "one for each element and operator";
  EXPECT_EQ(work.of(kernel)->bytes, 4 * 2 * 12) << "what one node makes for the other is not in memory";
  EXPECT_EQ(work.of(kernel)->dtype, at::kFloat);
  ASSERT_TRUE(work.of(view));
  EXPECT_EQ(work.of(view)->bytes, 0);
  EXPECT_FALSE(GraphWork(*graph, {given_input(at::randn({3, 4}).to_sparse()), given_input(12)}).of(kernel));
}

TEST(GraphWork, KnowsNothingOfWeightsInAListFromOutside) {
  const auto graph = testing::graph_of(R"(graph(%x : Tensor, %h : Tensor, %weights : Tensor[]):
  %false : bool = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %no : float = prim::Constant[value=0.]()
  %y : Tensor, %last : Tensor = aten::gru(%x, %h, %weights, %false, %one, %no, %false, %false, %false)
  return (%y)
)");
  const GraphWork work(*graph, {given_input(at::randn({5, 2, 3})), given_input(at::randn({1, 2, 4})), GivenInput{}});
  EXPECT_FALSE(work.of(*graph->outputs()[0]->node()));
}

// The formulas, beside what is counted by hand.
TEST(StepTrace, CountsTheWorkOfEachKindOfOperator) {
  const at::NoGradGuard no_grad;
  struct Case {
    const char* text;
    torch::jit::Stack arguments;
    double flops;
    double elements;  // of 4 bytes
  };
  const at::Tensor image = at::randn({2, 6, 8, 8});
  const at::Tensor grad = at::randn({2, 4, 6, 6});
  const at::Tensor heads = at::randn({2, 3, 5, 8});
  const std::vector<Case> cases = {
      {R"(graph(%x : Tensor, %w : Tensor):
  %none : NoneType = prim::Constant()
  %one : int = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %two : int = prim::Constant[value=2]()
  %ones : int[] = prim::ListConstruct(%one, %one)
  %zeros : int[] = prim::ListConstruct(%zero, %zero)
  %y : Tensor = aten::conv2d(%x, %w, %none, %ones, %zeros, %ones, %two)
  return (%y)
)",
       {image, at::randn({4, 3, 3, 3})},
       2.0 * (2 * 4 * 6 * 6) * (3 * 3 * 3),
       2 * 6 * 8 * 8 + 4 * 27 + 2 * 4 * 6 * 6},
      {R"(graph(%q : Tensor, %k : Tensor):
  %none : NoneType = prim::Constant()
  %no : float = prim::Constant[value=0.]()
  %false : bool = prim::Constant[value=0]()
  %y : Tensor = aten::scaled_dot_product_attention(%q, %k, %k, %none, %no, %false, %none, %false)
  return (%y)
)",
       {heads, at::randn({2, 3, 7, 8})},
       2 * 2.0 * (2 * 3 * 5 * 8) * 7,
       2 * (2 * 3 * 5 * 8) + 2 * 3 * 7 * 8},
      {R"(graph(%x : Tensor, %y : Tensor):
  %z : Tensor = aten::bmm(%x, %y)
  return (%z)
)",
       {at::randn({2, 3, 4}), at::randn({2, 4, 5})},
       2 * 2 * 3 * 4 * 5,
       24 + 40 + 30},
      {R"(graph(%w : Tensor, %i : Tensor):
  %pad : int = prim::Constant[value=-1]()
  %no : bool = prim::Constant[value=0]()
  %z : Tensor = aten::embedding(%w, %i, %pad, %no, %no)
  return (%z)
)",
       {at::randn({100, 8}), at::zeros({3}, at::kLong)},
       3 * 8,
       3 * 8 + 3 * 8 + 2 * 3},  // the rows, once read and once written, and integers of 8 bytes
  };
  for (const Case& each : cases) {
    const auto plan = traceable_plan(each.text);
    StepTrace trace;
    run_once(*plan, each.arguments);
    double flops = 0;
    double bytes = 0;
    for (const StepTiming& timing : trace.timings()) {
      ASSERT_TRUE(timing.work) << timing.node;
      flops += timing.work->flops;
      bytes += timing.work->bytes;
    }
    EXPECT_EQ(flops, each.flops) << each.text;
    EXPECT_EQ(bytes, 4 * each.elements) << each.text;
  }
}

TEST(StepTrace, NestsStepsInIterationsAndLoops) {
  const auto plan = traceable_plan(R"(graph(%x : Tensor, %n : int):
  %true : bool = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %y : Tensor = prim::Loop(%n, %true, %x)
    block0(%i : int, %a : Tensor):
      %b : Tensor = prim::Loop(%two, %true, %a)
        block0(%j : int, %c : Tensor):
          %d : Tensor = aten::exp(%c)
          -> (%true, %d)
      %e : Tensor = aten::neg(%b)
      -> (%true, %e)
  return (%y)
)");
  StepTrace trace;
  run_once(*plan, {at::zeros({2}), 3});
  run_once(*plan, {at::zeros({2}), 0});
  const auto slices = slices_of(trace.json());
  const auto inner = named(slices, "aten::exp");
  ASSERT_EQ(inner.size(), 6U);
  EXPECT_EQ(inner[0].around, (std::vector<std::string>{"plan", "prim::Loop", "iteration 0", "prim::Loop", "iteration 0"}));
  EXPECT_EQ(inner[5].around, (std::vector<std::string>{"plan", "prim::Loop", "iteration 2", "prim::Loop", "iteration 1"}));
  const auto outer = named(slices, "aten::neg");
  ASSERT_EQ(outer.size(), 3U);
  EXPECT_EQ(outer[1].around, (std::vector<std::string>{"plan", "prim::Loop", "iteration 1"}));
  std::vector<int> iterations;
  for (const Slice& loop : named(slices, "prim::Loop")) {
    iterations.push_back(loop.arguments["iterations"]);
  }
  EXPECT_THAT(iterations, ::testing::UnorderedElementsAre(3, 2, 2, 2, 0));
}

TEST(StepTrace, EndsTheSlicesOfARunThatThrows) {
  const auto plan = traceable_plan(R"(graph(%x : Tensor, %y : Tensor):
  %a : Tensor = aten::neg(%x)
  %b : Tensor = aten::mm(%a, %y)
  return (%b)
)");
  StepTrace trace;
  EXPECT_THROW(run_once(*plan, {at::ones({2, 3}), at::ones({2, 3})}), c10::Error);
  run_once(*plan, {at::ones({2, 3}), at::ones({3, 2})});
  const auto slices = slices_of(trace.json());
  EXPECT_EQ(named(slices, "aten::mm").size(), 2U);
  EXPECT_EQ(named(slices, "return").size(), 1U);
  EXPECT_EQ(named(slices, "aten::neg")[1].around, std::vector<std::string>{"plan"});
}

TEST(StepTrace, IsTheOnlyOneAndMayBeMadeAgain) {
  const auto plan = traceable_plan(kMixed);
  {
    StepTrace first;
    EXPECT_THAT(testing::message_of([] { const StepTrace second; }), HasSubstr("one StepTrace at a time"));
    first.stop();
    StepTrace third;
    run_once(*plan, {at::ones({2})});
    EXPECT_EQ(third.calls(), 1U);
    EXPECT_EQ(first.calls(), 0U);
  }
  run_once(*plan, {at::ones({2})});
  StepTrace empty;
  EXPECT_TRUE(slices_of(empty.json()).empty());
}

TEST(StepTrace, KeepsWhatItNeedsOfPlansThatAreGone) {
  StepTrace trace;
  for (int i = 0; i < 3; ++i) {
    run_once(*traceable_plan(kMixed), {at::ones({2})});
  }
  EXPECT_EQ(trace.timings().size(), 3 * 5U);
  EXPECT_EQ(named(slices_of(trace.json()), "aten::neg").size(), 3U);
}

TEST(StepTrace, DropsWhatExceedsItsLimitAndSaysSo) {
  const auto plan = traceable_plan(kMixed);
  StepTrace trace(/*max_steps=*/8);
  run_once(*plan, {at::ones({2})});
  EXPECT_FALSE(trace.is_full());
  run_once(*plan, {at::ones({2})});
  EXPECT_TRUE(trace.is_full());
  EXPECT_EQ(slices_of(trace.json()).size(), 8U);
  EXPECT_EQ(trace.dropped_steps(), 4U);
  EXPECT_THAT(trace.json(), HasSubstr("\"dropped_steps\":4"));
}

TEST(StepTrace, RecordsAllThreads) {
  const auto plan = traceable_plan(kMixed);
  StepTrace trace;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 50; ++call) {
        run_once(*plan, {at::ones({2})});
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(trace.calls(), 200U);
  for (const StepTiming& timing : trace.timings()) {
    EXPECT_EQ(timing.runs, 200U);
  }
  EXPECT_EQ(slices_of(trace.json()).size(), 200 * (plan->steps().size() + 1));
}

// Must be tested with ThreadSanitizer to mean much.
TEST(StepTrace, BeginsAndEndsWhileOthersRun) {
  const auto plan = traceable_plan(kMixed);
  std::atomic<bool> is_over{false};
  std::thread caller([&] {
    while (!is_over) {
      run_once(*plan, {at::ones({2})});
    }
  });
  for (int i = 0; i < 50; ++i) {
    StepTrace trace;
    std::this_thread::yield();
    for (const StepTiming& timing : trace.timings()) {
      EXPECT_EQ(timing.runs, trace.calls());
    }
  }
  is_over = true;
  caller.join();
}

TEST(StepTrace, WritesAFileOrNamesIt) {
  StepTrace trace;
  const std::string path = ::testing::TempDir() + "sconce_step_trace.json";
  trace.write(path);
  EXPECT_EQ(testing::read_text(path), trace.json());
  std::remove(path.c_str());
  EXPECT_THAT(testing::message_of([&] { trace.write("nowhere/trace.json"); }),
              HasSubstr("nowhere/trace.json: cannot be written: No such file"));
  EXPECT_THAT(testing::message_of([&] { trace.write("/dev/full"); }),
              HasSubstr("/dev/full: cannot be written: No space left"));
}

}  // namespace
}  // namespace sconce
