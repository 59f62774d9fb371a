// StepTrace: every step that ran, with its place in runs, loops and iterations.
#include <sconce/step_trace.h>

#include "tests/support/graphs.h"
#include "tests/support/trace_slices.h"

#include "lower/lower.h"
#include "plan/run_plan.h"

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
