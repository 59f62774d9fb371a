#include "plan/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

namespace sconce {
namespace {

const size_t kLargest = kMaxInArena;

bool overlap(size_t begin_a, size_t end_a, size_t begin_b, size_t end_b) { return begin_a < end_b && begin_b < end_a; }

TEST(Pack, GivesSlotsThatLiveAtOneTimeDifferentBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> lifetimes;
    std::vector<size_t> bytes;
    for (int slot = 0; slot < 40; ++slot) {
      const auto first = static_cast<uint32_t>(random() % 60);
      lifetimes.push_back({first, first + static_cast<uint32_t>(random() % 12)});
      bytes.push_back(random() % 5 == 0 ? 0 : 1 + random() % 5000);
    }
    const ArenaLayout layout = pack(lifetimes, bytes);
    EXPECT_GE(layout.bytes, layout.lower_bound);
    for (size_t a = 0; a < bytes.size(); ++a) {
      EXPECT_LE(layout.offsets[a] + bytes[a], layout.bytes);
      EXPECT_EQ(layout.offsets[a] % 64, 0U);
      for (size_t b = a + 1; b < bytes.size(); ++b) {
        if (overlap(lifetimes[a].first, lifetimes[a].last + 1, lifetimes[b].first, lifetimes[b].last + 1)) {
          EXPECT_FALSE(
              overlap(layout.offsets[a], layout.offsets[a] + bytes[a], layout.offsets[b], layout.offsets[b] + bytes[b]))
              << "round " << round << ", slots " << a << " and " << b;
        }
      }
    }
  }
}

TEST(Pack, ReachesTheLowerBoundOfAChain) {
  // Each tensor is read by the next step alone: two are live at a time.
  std::vector<Lifetime> lifetimes;
  for (uint32_t i = 0; i < 20; ++i) {
    lifetimes.push_back({i, i + 1});
  }
  const ArenaLayout layout = pack(lifetimes, std::vector<size_t>(20, 256));
  EXPECT_EQ(layout.bytes, 512U);
  EXPECT_EQ(layout.lower_bound, 512U);
}

TEST(MemoryPlan, HasNoLayoutBeforeTheFirstRun) {
  MemoryPlan plan({{0, 1}, {1, 2}});
  EXPECT_EQ(plan.layout(), nullptr);
  plan.learn(std::vector<size_t>{100, 50});
  ASSERT_NE(plan.layout(), nullptr);
  EXPECT_EQ(plan.layout()->capacities, (std::vector<size_t>{100, 50}));
}

TEST(MemoryPlan, LeavesRoomInASlotThatGrows) {
  MemoryPlan plan({{0, 1}});
  size_t layouts = 0;
  for (size_t bytes = 100; bytes < 10'000; bytes += 10) {
    if (plan.layout() == nullptr || plan.layout()->capacities[0] < bytes) {
      plan.learn(std::vector<size_t>{bytes});
      ++layouts;
    }
  }
  EXPECT_LT(layouts, 25U);
}

TEST(MemoryPlan, LeavesLargeSlotsOut) {
  MemoryPlan plan({{0, 1}, {1, 2}});
  plan.learn(std::vector<size_t>{kLargest, kLargest + 1});
  EXPECT_EQ(plan.layout()->capacities, (std::vector<size_t>{kLargest, 0}));
  EXPECT_EQ(plan.layout()->bytes, kLargest);
  const ArenaLayout* const first = plan.layout();
  plan.learn(std::vector<size_t>{1, 10 * kLargest});
  EXPECT_EQ(plan.layout(), first);
}

TEST(MemoryPlan, KeepsTheLayoutWhenEverythingFits) {
  MemoryPlan plan({{0, 1}});
  plan.learn(std::vector<size_t>{1000});
  const ArenaLayout* const first = plan.layout();
  plan.learn(std::vector<size_t>{10});
  EXPECT_EQ(plan.layout(), first);
}

}  // namespace
}  // namespace sconce
