#include "executor/plan_cache/plan_cache.h"

#include "tests/executor/failing_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace sconce {
namespace {

using Cache = PlanCache<int>;
using Words = std::vector<uint64_t>;

// As in use: find, and make on a miss.
PlanCache<int>::Inserted insert(Cache& cache, const Words& key, int value, uint64_t hash) {
  const Cache::Guard guard(cache);
  return cache.find_or_insert(guard, key, hash, [&] { return value; });
}
PlanCache<int>::Inserted insert(Cache& cache, const Words& key, int value) { return insert(cache, key, value, key.at(0)); }

int lookup(Cache& cache, const Words& key, uint64_t hash) {
  const Cache::Guard guard(cache);
  const int* found = cache.find(guard, key, hash);
  return found == nullptr ? -1 : *found;
}
int lookup(Cache& cache, const Words& key) { return lookup(cache, key, key.at(0)); }

TEST(PlanCache, MissesWhenEmptyAndHitsAfterInsertion) {
  Cache cache(4);
  EXPECT_EQ(lookup(cache, {1, 2}), -1);
  const auto inserted = insert(cache, {1, 2}, 12);
  EXPECT_TRUE(inserted.is_new);
  EXPECT_EQ(inserted.evicted, 0);
  EXPECT_EQ(lookup(cache, {1, 2}), 12);
}

TEST(PlanCache, ComparesKeysAndNotOnlyTheirHashes) {
  Cache cache(4);
  insert(cache, {1, 2}, 12, 99);
  EXPECT_EQ(lookup(cache, {1, 3}, 99), -1);
  EXPECT_EQ(lookup(cache, {1}, 99), -1);
  EXPECT_EQ(lookup(cache, {1, 2, 0}, 99), -1);
  insert(cache, {1, 3}, 13, 99);
  EXPECT_EQ(lookup(cache, {1, 2}, 99), 12);
  EXPECT_EQ(lookup(cache, {1, 3}, 99), 13);
}

TEST(PlanCache, FindsEveryEntryThoughAllHashesCollide) {
  Cache cache(64);
  for (uint64_t i = 0; i < 64; ++i) {
    insert(cache, {i}, static_cast<int>(i), 7);
  }
  for (uint64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(lookup(cache, {i}, 7), static_cast<int>(i));
  }
}

TEST(PlanCache, MakesAPlanOncePerKey) {
  Cache cache(4);
  insert(cache, {1}, 10);
  const auto again = insert(cache, {1}, 20);
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(*again.value, 10);
}

TEST(PlanCache, HoldsNoMoreThanItsCapacity) {
  Cache cache(3);
  size_t evicted = 0;
  for (uint64_t i = 0; i < 10; ++i) {
    evicted += insert(cache, {i}, static_cast<int>(i)).evicted;
    EXPECT_LE(cache.size(), 3);
    EXPECT_EQ(lookup(cache, {i}), static_cast<int>(i));
  }
  EXPECT_EQ(evicted, 7);
}

TEST(PlanCache, ACapacityOfZeroCountsAsOne) {
  Cache cache(0);
  insert(cache, {1}, 1);
  EXPECT_EQ(lookup(cache, {1}), 1);
  EXPECT_EQ(insert(cache, {2}, 2).evicted, 1);
}

TEST(PlanCache, EvictsTheEntryThatWasNotUsedSinceTheHandPassed) {
  Cache cache(3);
  for (uint64_t i = 1; i <= 3; ++i) {
    insert(cache, {i}, static_cast<int>(i));
  }
  insert(cache, {4}, 4);  // none was used: the hand takes the first
  EXPECT_EQ(lookup(cache, {1}), -1);
  EXPECT_EQ(lookup(cache, {2}), 2);  // marks 2 again
  insert(cache, {5}, 5);
  EXPECT_EQ(lookup(cache, {3}), -1) << "3 was the one without a use";
  EXPECT_EQ(lookup(cache, {2}), 2);
  EXPECT_EQ(lookup(cache, {4}), 4);
  EXPECT_EQ(lookup(cache, {5}), 5);
}

TEST(PlanCache, KeepsAnEntryThatIsUsedBetweenAllInsertions) {
  Cache cache(4);
  insert(cache, {1000}, 1000);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(lookup(cache, {1000}), 1000) << "after " << i << " insertions";
    insert(cache, {i}, static_cast<int>(i));
  }
}

TEST(PlanCache, ClearForgetsEverythingAndGoesOnWorking) {
  Cache cache(4);
  insert(cache, {1}, 1);
  insert(cache, {2}, 2);
  cache.clear();
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(lookup(cache, {1}), -1);
  EXPECT_TRUE(insert(cache, {1}, 11).is_new);
  EXPECT_EQ(lookup(cache, {1}), 11);
}

TEST(PlanCache, VisitsEntriesOldestFirst) {
  Cache cache(4);
  for (uint64_t i = 1; i <= 3; ++i) {
    insert(cache, {i}, static_cast<int>(10 * i));
  }
  std::vector<int> seen;
  const Cache::Guard guard(cache);
  cache.for_each(guard, [&](SpecWords, const int& value) { seen.push_back(value); });
  EXPECT_EQ(seen, (std::vector<int>{10, 20, 30}));
}

// A value that knows whether it lives, and is counted.
struct Tracked {
  static inline std::atomic<int> living{0};
  explicit Tracked(uint64_t of) : key(of) { ++living; }
  Tracked(Tracked&& other) noexcept : key(other.key) { ++living; }
  Tracked(const Tracked& other) : key(other.key) { ++living; }
  ~Tracked() {
    key = ~uint64_t{0};
    --living;
  }
  volatile uint64_t key;
};

TEST(PlanCache, AReaderKeepsWhatItFoundThroughClearAndEviction) {
  {
    PlanCache<Tracked> cache(1);
    {
      const PlanCache<Tracked>::Guard guard(cache);
      const auto inserted = cache.find_or_insert(guard, Words{1}, 1, [] { return Tracked(1); });
      cache.find_or_insert(guard, Words{2}, 2, [] { return Tracked(2); });
      EXPECT_EQ(inserted.value->key, 1) << "evicted but held";
      cache.clear();
      EXPECT_EQ(cache.size(), 0);
      EXPECT_GT(cache.collect(), 0) << "the guard holds retired entries";
      EXPECT_EQ(inserted.value->key, 1) << "cleared but held";
    }
    EXPECT_EQ(cache.collect(), 0);
    EXPECT_EQ(Tracked::living, 0);
  }
  EXPECT_EQ(Tracked::living, 0);
}

TEST(PlanCache, TwoThreadsThatMissOnTheSameSpecCompileOnce) {
  for (int round = 0; round < 200; ++round) {
    Cache cache(8);
    std::atomic<int> made{0};
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        ++ready;
        while (ready.load() < 3) {
          std::this_thread::yield();
        }
        const Cache::Guard guard(cache);
        const Words key{5, 6};
        if (cache.find(guard, key, 5) == nullptr) {
          EXPECT_EQ(*cache.find_or_insert(guard, key, 5, [&] { return 100 + made++; }).value, 100);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(made.load(), 1);
  }
}

TEST(PlanCache, ThreadsThatFindInsertEvictAndClearAlwaysSeeTheirOwnKeysValue) {
  {
    PlanCache<Tracked> cache(5);
    std::atomic<uint64_t> wrong{0};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        uint64_t state = t + 1;
        for (int i = 0; i < 5000; ++i) {
          state = state * 6364136223846793005ULL + 1442695040888963407ULL;
          const uint64_t word = (state >> 33) % 12;
          const Words key{word};
          const PlanCache<Tracked>::Guard guard(cache);
          Tracked* found = cache.find(guard, key, word % 3);  // hashes collide
          if (found == nullptr) {
            found = cache.find_or_insert(guard, key, word % 3, [&] { return Tracked(word); }).value;
          }
          if (i % 500 == 0) {
            cache.clear();
          }
          wrong += found->key == word ? 0 : 1;
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_LE(cache.size(), 5);
    EXPECT_EQ(cache.collect(), 0);
    EXPECT_EQ(static_cast<size_t>(Tracked::living), cache.size());
  }
  EXPECT_EQ(Tracked::living, 0);
}

// ---- what may go wrong ----------------------------------------------------------------------------------------------

// A value whose destruction waits for a task that inserts into the same cache, as that of a plan waits for its forked tasks.
struct WaitsForAnInsertion {
  explicit WaitsForAnInsertion(std::function<void()> insertion) : insert_one(std::move(insertion)) {}
  WaitsForAnInsertion(const WaitsForAnInsertion&) = delete;
  ~WaitsForAnInsertion() {
    auto task = std::make_shared<std::packaged_task<void()>>(insert_one);
    std::future<void> done = task->get_future();
    std::thread([task] { (*task)(); }).detach();
    finished = done.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
    done.wait_for(std::chrono::seconds(finished ? 0 : 1));
  }
  std::function<void()> insert_one;
  static inline std::atomic<bool> finished{false};
};

TEST(PlanCache, DestroysOutsideItsLock) {
  using WaitingCache = PlanCache<std::shared_ptr<WaitsForAnInsertion>>;
  const std::vector<std::function<void(WaitingCache&)>> removals = {
      [](WaitingCache& cache) { cache.clear(); },
      [](WaitingCache& cache) {
        for (uint64_t key = 2; key < 6; ++key) {
          const WaitingCache::Guard guard(cache);
          cache.find_or_insert(guard, Words{key}, key, [] { return nullptr; });
        }
      },
  };
  for (const auto& remove : removals) {
    const auto cache = std::make_shared<WaitingCache>(1);  // a task that is late keeps it
    WaitsForAnInsertion::finished = false;
    {
      const WaitingCache::Guard guard(*cache);
      cache->find_or_insert(guard, Words{1}, 1, [weak = std::weak_ptr(cache)] {
        return std::make_shared<WaitsForAnInsertion>([weak] {
          if (const auto living = weak.lock()) {
            const WaitingCache::Guard inner(*living);
            living->find_or_insert(inner, Words{100}, 100, [] { return nullptr; });
          }
        });
      });
    }
    remove(*cache);
    EXPECT_TRUE(WaitsForAnInsertion::finished) << "the task waited for the lock of its plan's cache";
  }
}

TEST(PlanCache, AFailedAllocationLosesNothing) {
  {
    bool failed = true;
    for (size_t number = 1; failed; ++number) {
      PlanCache<Tracked> cache(2);
      for (uint64_t key = 1; key <= 2; ++key) {
        const PlanCache<Tracked>::Guard guard(cache);
        cache.find_or_insert(guard, Words{key}, key, [key] { return Tracked(key); });
      }
      const Words key{3};
      const PlanCache<Tracked>::Guard guard(cache);
      {
        const testing::FailingMemory memory(number);
        try {
          cache.find_or_insert(guard, key, 3, [] { return Tracked(3); });
        } catch (const std::bad_alloc&) {
        }
        failed = memory.failed();
      }
      cache.collect();
      EXPECT_EQ(cache.size(), 2);
      EXPECT_EQ(cache.find(guard, key, 3) == nullptr, failed) << "allocation " << number;
      EXPECT_EQ(static_cast<size_t>(Tracked::living), failed ? 2 : 3) << "allocation " << number;
    }
  }
  EXPECT_EQ(Tracked::living, 0);
}

TEST(PlanCache, TheKeyMayBeOverwrittenWhileTheValueIsMade) {
  Cache cache(4);
  Words key{1, 2};
  {
    const Cache::Guard guard(cache);
    cache.find_or_insert(guard, key, 1, [&] {
      key = {7, 8};
      return 12;
    });
  }
  EXPECT_EQ(lookup(cache, {1, 2}), 12);
  EXPECT_EQ(lookup(cache, {7, 8}, 1), -1);
}

TEST(PlanCache, HoldsValuesThatCannotBeMoved) {
  PlanCache<std::atomic<int>> cache(1);
  const PlanCache<std::atomic<int>>::Guard guard(cache);
  const auto inserted = cache.find_or_insert(guard, Words{1}, 1, [] { return std::atomic<int>(5); });
  EXPECT_EQ(inserted.value->load(), 5);
}

TEST(PlanCache, ItsSizeMayBeAskedForBesideWriters) {
  Cache cache(4);
  std::atomic<bool> stop{false};
  std::thread asking([&] {
    while (!stop.load()) {
      EXPECT_LE(cache.size(), 4);
    }
  });
  for (uint64_t key = 0; key < 20000; ++key) {
    insert(cache, {key}, 1);
  }
  stop = true;
  asking.join();
}

}  // namespace
}  // namespace sconce
