// Plans that are dropped while they run.
#include "tests/support/graphs.h"

#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace sconce {
namespace {

// A plan of -a with what tells whether it is alive: nothing else holds its graph.
struct Droppable {
  std::weak_ptr<const Graph> graph;
  std::optional<DroppablePlan> plan;

  Droppable() {
    auto made = lower(testing::graph_of("graph(%a : Tensor):\n  %b : Tensor = aten::neg(%a)\n  return (%b)\n"));
    graph = (*made)->graph();
    plan.emplace(std::move(*made));
  }
};

TEST(DroppablePlan, LivesUntilItsLastRunEnds) {
  Droppable dropped;
  {
    FrameLease first(**dropped.plan);
    {
      FrameLease second(**dropped.plan);
      dropped.plan.reset();
      EXPECT_FALSE(dropped.graph.expired());
      torch::jit::Stack stack = {at::ones({2})};
      run_plan(second, stack, AutogradUse::kAll);
      EXPECT_TRUE(testing::agree(stack.at(0), -at::ones({2})));
    }
    EXPECT_FALSE(dropped.graph.expired());
  }
  EXPECT_TRUE(dropped.graph.expired());
}

TEST(DroppablePlan, MayBeDroppedWhileFramesAreGivenBack) {
  constexpr int kThreads = 3;
  for (int round = 0; round < 200; ++round) {
    Droppable dropped;
    std::atomic<int> taken{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        const FrameLease lease(**dropped.plan);
        ++taken;
        while (!go) {
          std::this_thread::yield();
        }
      });
    }
    while (taken < kThreads) {
      std::this_thread::yield();
    }
    go = true;
    dropped.plan.reset();
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_TRUE(dropped.graph.expired());
  }
}

TEST(DroppablePlan, IsNotKeptByTheFramesOfRunsThatEnded) {
  Droppable dropped;
  for (int run = 0; run < 3; ++run) {
    torch::jit::Stack stack = {at::ones({2})};
    run_plan(**dropped.plan, stack, AutogradUse::kAll);
  }
  EXPECT_EQ((*dropped.plan)->frames_made(), 1);
  dropped.plan.reset();
  EXPECT_TRUE(dropped.graph.expired());
}

}  // namespace
}  // namespace sconce
