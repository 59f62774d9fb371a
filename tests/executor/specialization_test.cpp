// Plans of single specs: when they are compiled, which calls they serve, and what happens if a compile fails or comes too
// late.
#include <sconce/sconce.h>

#include "tests/executor/failing_memory.h"
#include "tests/support/graphs.h"

#include "fusion/program/kernel_width.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/runtime/print_handler.h>

#include <gmock/gmock.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace sconce {
namespace {

using testing::agree;
using testing::graph_of;
using ::testing::HasSubstr;
using Values = std::vector<c10::IValue>;

const char* const kByRank =
    "graph(%x : Tensor):\n"
    "  %two : int = prim::Constant[value=2]()\n"
    "  %d : int = aten::dim(%x)\n"
    "  %is_matrix : bool = aten::eq(%d, %two)\n"
    "  %y : Tensor = prim::If(%is_matrix)\n"
    "    block0():\n"
    "      %t : Tensor = aten::t(%x)\n"
    "      -> (%t)\n"
    "    block1():\n"
    "      %n : Tensor = aten::neg(%x)\n"
    "      -> (%n)\n"
    "  %z : Tensor = aten::mul(%y, %y)\n"
    "  return (%z)\n";

at::Tensor expected_by_rank(const at::Tensor& x) { return x.dim() == 2 ? x.t() * x.t() : x * x; }

at::Tensor call(GraphExecutor& executor, const at::Tensor& x) {
  Values stack = {x};
  executor.run(stack);
  return stack.at(0).toTensor();
}

void expect_right(GraphExecutor& executor, const at::Tensor& x) {
  EXPECT_TRUE(agree(call(executor, x), expected_by_rank(x)));
}

std::vector<PlanExplanation> specialized_plans(const GraphExecutor& executor) {
  std::vector<PlanExplanation> plans = executor.explain().plans;
  std::erase_if(plans, [](const PlanExplanation& plan) { return plan.tier != Tier::kRanks; });
  return plans;
}

std::string why_generic(const GraphExecutor& executor) {
  const std::vector<std::string> reasons = executor.explain().plans.at(0).why_generic;
  return reasons.empty() ? "" : reasons.back();
}

// ---- when ---------------------------------------------------------------------------------------------------------------

TEST(Specialization, BlockingServesTheFirstCallOfEachSpec) {
  GraphExecutor executor(graph_of(kByRank), "f", Options().compile(CompileMode::kBlocking));
  for (const int64_t rank : {2, 1, 2, 3, 2}) {
    expect_right(executor, at::rand(std::vector<int64_t>(static_cast<size_t>(rank), 3)));
  }
  const auto plans = specialized_plans(executor);
  ASSERT_EQ(plans.size(), 3);
  EXPECT_THAT(plans[0].specs, ::testing::ElementsAre(HasSubstr("Float(*, *)")));
  EXPECT_THAT(plans[0].text, HasSubstr("aten::t"));
  EXPECT_THAT(plans[0].text, ::testing::Not(HasSubstr("jump")));
  EXPECT_THAT(plans[1].text, ::testing::Not(HasSubstr("aten::t")));
  EXPECT_EQ(plans[0].runs, 3);
  EXPECT_GT(plans[0].compile_seconds, 0);
  const Explanation explanation = executor.explain();
  EXPECT_EQ(explanation.plans[0].runs, 0) << "the generic plan";
  EXPECT_EQ(explanation.counters.compiles, 4);
  EXPECT_EQ(explanation.counters.refusals, 0);
}

TEST(Specialization, InTheBackgroundTheSecondCallOfASpecAsksForIt) {
  GraphExecutor executor(graph_of(kByRank), "f", Options());
  const at::Tensor x = at::rand({3, 2});
  expect_right(executor, x);
  executor.wait_for_compiles();
  EXPECT_TRUE(specialized_plans(executor).empty());
  EXPECT_EQ(why_generic(executor), "it ran once");
  expect_right(executor, x);
  executor.wait_for_compiles();
  expect_right(executor, x);
  const auto plans = specialized_plans(executor);
  ASSERT_EQ(plans.size(), 1);
  EXPECT_GE(plans[0].runs, 1);
}

TEST(Specialization, NeverMeansNever) {
  GraphExecutor executor(graph_of(kByRank), "f", Options().compile(CompileMode::kNever));
  for (int i = 0; i < 4; ++i) {
    expect_right(executor, at::rand({3, 2}));
  }
  executor.wait_for_compiles();
  EXPECT_TRUE(specialized_plans(executor).empty());
  EXPECT_THAT(why_generic(executor), HasSubstr("kNever"));
}

// ---- which ones ---------------------------------------------------------------------------------------------------------

TEST(Specialization, AGraphThatItDoesNotChangeKeepsTheGenericPlan) {
  GraphExecutor executor(graph_of("graph(%x : Tensor):\n  %y : Tensor = aten::neg(%x)\n  return (%y)\n"), "f",
                         Options().compile(CompileMode::kBlocking));
  call(executor, at::rand({2}));
  EXPECT_TRUE(specialized_plans(executor).empty());
  EXPECT_THAT(why_generic(executor), HasSubstr("changes no node"));
  EXPECT_EQ(executor.explain().counters.refusals, 0);
}

// A kernel computes a cast only of an operand whose dtype is known.
TEST(Specialization, ACastThatAKernelComputesIsWorthAPlan) {
  const auto cast_to = [](at::ScalarType dtype) {
    return "graph(%x : Tensor):\n  %dtype : int = prim::Constant[value=" + std::to_string(static_cast<int>(dtype)) +
           "]()\n  %no : bool = prim::Constant[value=0]()\n  %none : NoneType = prim::Constant()\n"
           "  %y : Tensor = aten::to(%x, %dtype, %no, %no, %none)\n  return (%y)\n";
  };
  const at::Tensor x = at::rand({2});
  const at::NoGradGuard no_grad;
  GraphExecutor widening(graph_of(cast_to(at::kDouble)), "f", Options().compile(CompileMode::kBlocking));
  EXPECT_TRUE(agree(call(widening, x), x.to(at::kDouble)));
  EXPECT_EQ(specialized_plans(widening).size(), why_no_kernels().empty() ? 1 : 0);
  GraphExecutor rounding(graph_of(cast_to(at::kLong)), "f", Options().compile(CompileMode::kBlocking));
  EXPECT_TRUE(agree(call(rounding, x), x.to(at::kLong)));
  EXPECT_TRUE(specialized_plans(rounding).empty());
}

TEST(Specialization, TheGenericPlanServesWhereAssumptionsWouldNotHold) {
  GraphExecutor executor(graph_of(kByRank), "f", Options().compile(CompileMode::kBlocking));
  call(executor, at::rand({3, 2}).to_sparse());
  EXPECT_THAT(why_generic(executor), HasSubstr("exotic"));
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  expect_right(executor, at::rand({3, 2}));
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  EXPECT_EQ(why_generic(executor), "autocast is on for a device other than the CPU");
  EXPECT_TRUE(specialized_plans(executor).empty());
}

TEST(Specialization, CallsThatRecordGradientsHaveAPlanOfTheirOwn) {
  GraphExecutor executor(graph_of(kByRank), "f", Options().compile(CompileMode::kBlocking));
  expect_right(executor, at::rand({3, 2}).requires_grad_(true));
  EXPECT_EQ(specialized_plans(executor).size(), 1);
  const at::NoGradGuard no_grad;
  expect_right(executor, at::rand({3, 2}).requires_grad_(true));
  EXPECT_EQ(specialized_plans(executor).size(), 2);
}

TEST(Specialization, ValuesOfAttributesAreConstants) {
  auto script = testing::module_of(
      "def forward(self, x):\n"
      "    if self.training:\n        return x * self.scale\n"
      "    return x - 1\n",
      {{"scale", 3.0}, {"training", true}});
  const Module module = accelerate(script, Options().compile(CompileMode::kBlocking));
  const at::Tensor x = at::rand({3});
  EXPECT_TRUE(agree(module.forward({x}), x * 3.0));
  script.setattr("scale", 5.0);
  EXPECT_TRUE(agree(module.forward({x}), x * 5.0));
  script.eval();
  EXPECT_TRUE(agree(module.forward({x}), x - 1));
  script.train();
  EXPECT_TRUE(agree(module.forward({x}), x * 5.0));
  const auto plans = specialized_plans(module.method("forward"));
  ASSERT_EQ(plans.size(), 3);
  EXPECT_THAT(plans[0].text, ::testing::Not(HasSubstr("GetAttr")));
}

// ---- passes of the user's ---------------------------------------------------------------------------------------------

TEST(Specialization, RunsThePassesOfItsStageWithFacts) {
  Options options;
  options.compile(CompileMode::kBlocking);
  std::vector<std::string> seen;
  options.passes().before(Stage::kSpecialize, "before_facts", [&](Graph& graph) {
    seen.push_back(graph.inputs()[0]->facts() == nullptr ? "no facts" : "facts");
    return false;
  });
  options.passes().after(Stage::kSpecialize, "after_facts", [&](Graph& graph) {
    seen.push_back(graph.outputs()[0]->facts() != nullptr ? to_string(*graph.outputs()[0]->facts()) : "no facts");
    return false;
  });
  GraphExecutor executor(graph_of(kByRank), "f", options);
  expect_right(executor, at::rand({3, 2}));
  expect_right(executor, at::rand({3, 2}));
  EXPECT_THAT(seen, ::testing::ElementsAre("no facts", HasSubstr("Float(")));
}

TEST(Specialization, APassThatThrowsIsLeftOut) {
  for (const CompileMode mode : {CompileMode::kBlocking, CompileMode::kBackground}) {
    Options options;
    options.compile(mode).passes().reproducer_folder("");
    options.passes().after(Stage::kSpecialize, "thrower", [](Graph&) -> bool { throw std::runtime_error("no such luck"); });
    GraphExecutor executor(graph_of(kByRank), "f", options);
    for (int i = 0; i < 3; ++i) {
      expect_right(executor, at::rand({3, 2}));
      executor.wait_for_compiles();
    }
    const Explanation explanation = executor.explain();
    ASSERT_EQ(explanation.refusals.size(), 1);
    EXPECT_EQ(explanation.refusals[0].what, "pass thrower");
    EXPECT_THAT(explanation.refusals[0].reason, HasSubstr("no such luck"));
    EXPECT_EQ(explanation.counters.refusals, 1);
    EXPECT_EQ(specialized_plans(executor).size(), 1);
  }
}

TEST(Specialization, APassThatThrowsIsShownAlsoWhereThereIsNoPlan) {
  Options options;
  options.compile(CompileMode::kBlocking).passes().reproducer_folder("");
  options.passes().before(Stage::kSpecialize, "thrower", [](Graph&) -> bool { throw std::runtime_error("no such luck"); });
  GraphExecutor executor(graph_of("graph(%x : Tensor):\n  %y : Tensor = aten::neg(%x)\n  return (%y)\n"), "f", options);
  call(executor, at::rand({2}));
  EXPECT_THAT(why_generic(executor), HasSubstr("changes no node"));
  ASSERT_EQ(executor.explain().refusals.size(), 1);
  EXPECT_EQ(executor.explain().refusals[0].what, "pass thrower");
}

// A compile may call modules, also this one: the words of the call in progress are not lost.
TEST(Specialization, ACompileThatCallsTheSameExecutorDisturbsNothing) {
  GraphExecutor* self = nullptr;
  Options options;
  options.compile(CompileMode::kBlocking);
  options.passes().after(Stage::kSpecialize, "caller", [&](Graph&) {
    expect_right(*self, at::rand({2, 2, 2}));
    expect_right(*self, at::rand({4}));
    return false;
  });
  GraphExecutor executor(graph_of(kByRank), "f", options);
  self = &executor;
  expect_right(executor, at::rand({3, 2}));
  expect_right(executor, at::rand({3, 2}));
  for (const PlanExplanation& plan : specialized_plans(executor)) {
    EXPECT_EQ(plan.text.find("aten::t") != std::string::npos, plan.specs.at(0).find("Float(*, *)") != std::string::npos);
  }
}

// ---- no memory ----------------------------------------------------------------------------------------------------------

TEST(Specialization, ACompileWithoutMemoryLeavesTheGenericPlan) {
  bool failed = true;
  size_t refusals = 0;
  const at::Tensor x = at::rand({3, 2});
  for (size_t number = 1; failed; ++number) {
    GraphExecutor executor(graph_of(kByRank), "f", Options().compile(CompileMode::kBlocking));
    {
      const testing::FailingMemory memory(number);
      try {
        call(executor, x);
      } catch (const std::exception&) {
        // An allocation of the run itself.
      }
      failed = memory.failed();
    }
    expect_right(executor, x);
    refusals += executor.explain().counters.refusals;
  }
  EXPECT_GT(refusals, 10U);
}

TEST(Specialization, ACompileWithoutMemoryInTheBackgroundIsCounted) {
  for (const size_t number : {1, 5, 50}) {
    Options options;
    options.passes().before(Stage::kSpecialize, "use_up_memory", [number](Graph&) {
      static thread_local std::optional<testing::FailingMemory> memory;
      memory.emplace(number);
      return false;
    });
    GraphExecutor executor(graph_of(kByRank), "f", options);
    for (int i = 0; i < 3; ++i) {
      expect_right(executor, at::rand({3, 2}));
      executor.wait_for_compiles();
    }
    EXPECT_EQ(executor.explain().counters.refusals, 1) << "allocation " << number;
    EXPECT_EQ(why_generic(executor), "out of memory");
    EXPECT_TRUE(specialized_plans(executor).empty());
  }
}

// ---- who comes too late ------------------------------------------------------------------------------------------------

// A place where a thread waits until the test lets it go on.
class Gate {
 public:
  void pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++visitors_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_for_visitor() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return visitors_ > 0; });
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int visitors_ = 0;
  bool open_ = false;
};

std::unique_ptr<GraphExecutor> executor_with_gate(const std::shared_ptr<Gate>& gate) {
  Options options;
  options.passes().before(Stage::kSpecialize, "gate", [gate](Graph&) {
    gate->pass();
    return false;
  });
  return std::make_unique<GraphExecutor>(graph_of(kByRank), "f", options);
}

// Returns when the jobs are over that were submitted before.
void wait_for_queue() {
  GraphExecutor other(graph_of(kByRank), "other", Options());
  expect_right(other, at::rand({3, 2}));
  expect_right(other, at::rand({3, 2}));
  other.wait_for_compiles();
  EXPECT_EQ(specialized_plans(other).size(), 1);
}

TEST(Specialization, ACallDoesNotWaitForTheBackground) {
  const auto gate = std::make_shared<Gate>();
  const auto executor = executor_with_gate(gate);
  for (int i = 0; i < 5; ++i) {
    expect_right(*executor, at::rand({3, 2}));
  }
  gate->wait_for_visitor();
  expect_right(*executor, at::rand({3, 2}));
  EXPECT_EQ(why_generic(*executor), "its plan is being compiled");
  gate->open();
  executor->wait_for_compiles();
  EXPECT_EQ(specialized_plans(*executor).size(), 1);
}

TEST(Specialization, AnExecutorMayBeDestroyedWhileItsCompileRuns) {
  const auto gate = std::make_shared<Gate>();
  auto executor = executor_with_gate(gate);
  for (const int64_t rank : {1, 2, 3}) {  // the first runs, the others wait
    const at::Tensor x = at::rand(std::vector<int64_t>(static_cast<size_t>(rank), 2));
    expect_right(*executor, x);
    expect_right(*executor, x);
  }
  gate->wait_for_visitor();
  executor.reset();
  gate->open();
  wait_for_queue();
}

TEST(Specialization, APlanThatIsReadyAfterClearCacheIsDropped) {
  const auto gate = std::make_shared<Gate>();
  const auto executor = executor_with_gate(gate);
  const at::Tensor x = at::rand({3, 2});
  expect_right(*executor, x);
  expect_right(*executor, x);
  gate->wait_for_visitor();
  executor->clear_cache();
  gate->open();
  executor->wait_for_compiles();
  EXPECT_TRUE(specialized_plans(*executor).empty());
  EXPECT_TRUE(executor->explain().plans[0].specs.empty());
  for (int i = 0; i < 3; ++i) {
    expect_right(*executor, x);
    executor->wait_for_compiles();
  }
  EXPECT_EQ(specialized_plans(*executor).size(), 1);
}

Gate* print_gate = nullptr;

TEST(Specialization, APlanThatIsEvictedDuringARunServesItToTheEnd) {
  GraphExecutor executor(graph_of("graph(%x : Tensor, %waits : bool):\n"
                                  "  %one : int = prim::Constant[value=1]()\n"
                                  "  %d : int = aten::dim(%x)\n"
                                  "   = prim::If(%waits)\n"
                                  "    block0():\n"
                                  "       = prim::Print(%d)\n"
                                  "      -> ()\n"
                                  "    block1():\n"
                                  "      -> ()\n"
                                  "  %y : Tensor = aten::add(%x, %d, %one)\n"
                                  "  return (%y)\n"),
                         "f", Options().compile(CompileMode::kBlocking).plan_cache_capacity(1));
  Gate gate;
  print_gate = &gate;
  const auto handler = torch::jit::getPrintHandler();
  torch::jit::setPrintHandler([](const std::string&) { print_gate->pass(); });
  const auto run = [&](const at::Tensor& x, bool waits) {
    Values stack = {x, waits};
    executor.run(stack);
    EXPECT_TRUE(agree(stack.at(0), x + x.dim()));
  };
  std::thread thread([&] { run(at::rand({3, 2}), true); });
  gate.wait_for_visitor();
  for (int i = 0; i < 4; ++i) {
    run(at::rand({3}), false);
    run(at::rand({3, 3, 3}), false);
  }
  EXPECT_GE(executor.explain().counters.evictions, 4U);
  executor.clear_cache();
  gate.open();
  thread.join();
  torch::jit::setPrintHandler(handler);
}

TEST(Specialization, EightThreadsOnAColdExecutorGetRightAnswersForTenSpecs) {
  for (const CompileMode mode : {CompileMode::kBackground, CompileMode::kBlocking}) {
    for (const size_t capacity : {64, 4}) {
      GraphExecutor executor(graph_of(kByRank), "f", Options().compile(mode).plan_cache_capacity(capacity));
      std::atomic<int> wrong{0};
      std::vector<std::thread> threads;
      for (int thread = 0; thread < 8; ++thread) {
        threads.emplace_back([&, thread] {
          for (int i = 0; i < 100; ++i) {
            const int spec = (i / 5 + thread) % 10;
            const auto dtype = spec % 2 == 0 ? at::kFloat : at::kDouble;
            const at::Tensor x = at::rand(std::vector<int64_t>(static_cast<size_t>(spec / 2), 2 + i % 3), dtype);
            wrong += at::equal(call(executor, x), expected_by_rank(x)) ? 0 : 1;
            if (i == 50 && thread == 0) {
              executor.explain();
            }
          }
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
      EXPECT_EQ(wrong.load(), 0);
      executor.wait_for_compiles();
      const Counters counters = executor.explain().counters;
      EXPECT_EQ(counters.invocations, 800);
      EXPECT_EQ(counters.cache_hits + counters.cache_misses, 800);
      EXPECT_EQ(counters.refusals, 0);
      if (capacity == 64) {
        EXPECT_EQ(specialized_plans(executor).size(), 10);
      }
    }
  }
}

}  // namespace
}  // namespace sconce
