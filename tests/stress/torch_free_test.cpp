// The structures that many threads share without locks, hammered. No LibTorch in sight: these run under ThreadSanitizer
// without suppressions (rule R17).
#include "tests/stress/threads.h"

#include "executor/plan_cache/epoch.h"
#include "executor/plan_cache/plan_cache.h"
#include "executor/plan_cache/striped_counter.h"
#include "plan/object_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

namespace sconce::testing {
namespace {

constexpr int kThreads = 8;

// An object that knows whether it is alive and how many there are.
class Counted {
 public:
  explicit Counted(std::atomic<int>& alive, uint64_t value = 0) : alive_(alive), value_(value) { alive_.fetch_add(1); }
  ~Counted() {
    value_ = kDead;
    alive_.fetch_sub(1);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  uint64_t value() const { return value_; }

  int users = 0;  // plain: ThreadSanitizer sees two users at a time

 private:
  static constexpr uint64_t kDead = ~uint64_t{0};
  std::atomic<int>& alive_;
  uint64_t value_;
};

TEST(ObjectPool, GivesAnObjectToOneHolderAtATimeAndLosesNone) {
  std::atomic<int> alive{0};
  std::atomic<int> made{0};
  std::atomic<int> shared{0};
  {
    ObjectPool<Counted> pool;
    run_threads(kThreads, [&](int) {
      for (int i = 0; i < 20'000; ++i) {
        std::unique_ptr<Counted> object = pool.take();
        if (object == nullptr) {
          object = std::make_unique<Counted>(alive);
          made.fetch_add(1);
        }
        if (++object->users != 1) {
          shared.fetch_add(1);
        }
        --object->users;
        pool.give_back(std::move(object));
      }
    });
    EXPECT_LE(alive.load(), static_cast<int>(ObjectPool<Counted>::kSlots));
  }
  EXPECT_EQ(shared.load(), 0);
  EXPECT_EQ(alive.load(), 0);
  EXPECT_GE(made.load(), 1);
}

// More holders than slots: what has no place is destroyed.
TEST(ObjectPool, OverflowsWithoutLeaking) {
  std::atomic<int> alive{0};
  {
    ObjectPool<Counted> pool;
    run_threads(kThreads, [&](int) {
      for (int round = 0; round < 200; ++round) {
        std::vector<std::unique_ptr<Counted>> held;
        for (int i = 0; i < 20; ++i) {
          std::unique_ptr<Counted> object = pool.take();
          held.push_back(object ? std::move(object) : std::make_unique<Counted>(alive));
        }
        for (auto& object : held) {
          pool.give_back(std::move(object));
        }
      }
    });
    EXPECT_LE(alive.load(), static_cast<int>(ObjectPool<Counted>::kSlots));
  }
  EXPECT_EQ(alive.load(), 0);
}

TEST(EpochDomain, DestroysNothingThatAReaderHoldsAndEverythingInTheEnd) {
  std::atomic<int> alive{0};
  std::atomic<int> wrong{0};
  {
    EpochDomain domain;
    std::atomic<Counted*> published{new Counted(alive, 0)};
    run_threads(kThreads, [&](int thread) {
      for (uint64_t i = 1; i <= 10'000; ++i) {
        if (thread < 2) {  // writers
          const Counted* old = published.exchange(new Counted(alive, i));
          domain.retire([old] { delete old; });
        } else {
          const EpochDomain::Guard guard(domain);
          const Counted* seen = published.load();
          if (seen->value() > 10'000 || seen->value() > 10'000) {
            wrong.fetch_add(1);
          }
        }
      }
    });
    EXPECT_EQ(domain.collect(), 0U);
    EXPECT_EQ(alive.load(), 1);
    delete published.load();
  }
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(alive.load(), 0);
}

// A value that was made for a key.
using Plan = std::shared_ptr<Counted>;

class PlanCacheStress : public ::testing::TestWithParam<size_t> {};

TEST_P(PlanCacheStress, GivesEachKeyItsValueWhileEntriesAreEvictedAndCleared) {
  constexpr uint64_t kKeys = 12;
  constexpr int kCacheCalls = 1'000;
  std::atomic<int> alive{0};
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> hits{0};
  std::atomic<uint64_t> made{0};
  std::atomic<uint64_t> evicted{0};
  {
    PlanCache<Plan> cache(GetParam());
    run_threads(kThreads, [&](int thread) {
      for (int i = 0; i < kCacheCalls; ++i) {
        const uint64_t number = static_cast<uint64_t>(i * (thread + 1)) % kKeys;
        const std::vector<uint64_t> key = {number, number * number};
        const PlanCache<Plan>::Guard guard(cache);
        const Plan* plan = cache.find(guard, key, number % 3);  // hashes collide
        if (plan != nullptr) {
          hits.fetch_add(1);
        } else {
          const auto inserted =
              cache.find_or_insert(guard, key, number % 3, [&] { return std::make_shared<Counted>(alive, number); });
          made.fetch_add(inserted.is_new ? 1 : 0);
          evicted.fetch_add(inserted.evicted);
          plan = inserted.value;
        }
        if ((*plan)->value() != number) {
          wrong.fetch_add(1);
        }
        if (thread == 0 && i % 500 == 499) {
          cache.clear();
        }
        if (thread == 1 && i % 100 == 99) {
          cache.for_each(guard, [&](SpecWords words, const Plan& each) {
            if (each->value() != words[0]) {
              wrong.fetch_add(1);
            }
          });
        }
      }
    });
    EXPECT_LE(cache.size(), GetParam());
    EXPECT_EQ(cache.collect(), 0U);
    EXPECT_EQ(static_cast<size_t>(alive.load()), cache.size());
  }
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_EQ(alive.load(), 0);
  EXPECT_GE(made.load(), kKeys);
  if (GetParam() < kKeys) {
    EXPECT_GT(evicted.load(), 0U);
  }
  std::cout << hits << " hits, " << made << " plans made, " << evicted << " evicted\n";
}

INSTANTIATE_TEST_SUITE_P(Capacities, PlanCacheStress, ::testing::Values(1, 2, 64));

TEST(StripedCounter, CountsEveryAdd) {
  StripedCounter counter;
  run_threads(kThreads, [&](int) {
    for (int i = 0; i < 50'000; ++i) {
      counter.add(2);
    }
  });
  EXPECT_EQ(counter.value(), 2U * 50'000U * kThreads);
}

}  // namespace
}  // namespace sconce::testing
