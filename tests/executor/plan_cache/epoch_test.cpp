#include "executor/plan_cache/epoch.h"

#include "executor/plan_cache/striped_counter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace sconce {
namespace {

TEST(EpochDomain, DestroysAtOnceWhenNobodyReads) {
  EpochDomain domain;
  bool destroyed = false;
  domain.retire([&] { destroyed = true; });
  EXPECT_TRUE(destroyed);
  EXPECT_EQ(domain.collect(), 0);
}

TEST(EpochDomain, DestroysNothingThatALivingGuardMayHaveSeen) {
  EpochDomain domain;
  bool destroyed = false;
  {
    const EpochDomain::Guard guard(domain);
    domain.retire([&] { destroyed = true; });
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(domain.collect(), 1);
    }
    EXPECT_FALSE(destroyed);
  }
  EXPECT_EQ(domain.collect(), 0);
  EXPECT_TRUE(destroyed);
}

TEST(EpochDomain, ReadersThatComeLaterDoNotKeepAnEarlierReadersObjectsFromGoing) {
  EpochDomain domain;
  bool destroyed = false;
  auto first = std::make_unique<EpochDomain::Guard>(domain);
  domain.retire([&] { destroyed = true; });
  // Guards overlap without a gap, as calls under load do.
  for (int i = 0; i < 4; ++i) {
    auto next = std::make_unique<EpochDomain::Guard>(domain);
    first = std::move(next);
    domain.collect();
  }
  first.reset();
  EXPECT_EQ(domain.collect(), 0);
  EXPECT_TRUE(destroyed);
}

TEST(EpochDomain, GuardsNestInOneThread) {
  EpochDomain domain;
  bool destroyed = false;
  {
    const EpochDomain::Guard outer(domain);
    {
      const EpochDomain::Guard inner(domain);
    }
    domain.retire([&] { destroyed = true; });
    EXPECT_EQ(domain.collect(), 1);
    EXPECT_FALSE(destroyed);
  }
  domain.collect();
  EXPECT_TRUE(destroyed);
}

TEST(EpochDomain, DestructorDestroysWhatIsLeft) {
  int destroyed = 0;
  {
    std::optional<EpochDomain> domain(std::in_place);
    {
      const EpochDomain::Guard guard(*domain);
      for (int i = 0; i < 3; ++i) {
        domain->retire([&] { ++destroyed; });
      }
    }
    EXPECT_EQ(destroyed, 0);
  }
  EXPECT_EQ(destroyed, 3);
}

TEST(EpochDomain, DestructionMayRetireMore) {
  EpochDomain domain;
  int destroyed = 0;
  domain.retire([&] {
    ++destroyed;
    domain.retire([&] { ++destroyed; });
  });
  EXPECT_EQ(destroyed, 2);
}

// An object poisons itself when it is destroyed; readers must never see the poison.
struct Guarded {
  static constexpr uint64_t kAlive = 0x5ca1ab1e;
  explicit Guarded(std::atomic<int>& count) : living(count) { ++living; }
  ~Guarded() {
    mark.store(0);
    --living;
  }
  std::atomic<uint64_t> mark{kAlive};
  std::atomic<int>& living;
};

TEST(EpochDomain, ReadersNeverSeeADestroyedObjectWhileAWriterReplacesIt) {
  std::atomic<int> living{0};
  {
    EpochDomain domain;
    std::atomic<Guarded*> published{new Guarded(living)};
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> bad{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < 4; ++i) {
      readers.emplace_back([&] {
        while (!stop.load()) {
          const EpochDomain::Guard guard(domain);
          const Guarded* seen = published.load();
          for (int look = 0; look < 10; ++look) {
            bad += seen->mark.load() == Guarded::kAlive ? 0 : 1;
          }
        }
      });
    }
    for (int i = 0; i < 20000; ++i) {
      Guarded* old = published.exchange(new Guarded(living));
      domain.retire([old] { delete old; });
    }
    stop = true;
    for (std::thread& reader : readers) {
      reader.join();
    }
    EXPECT_EQ(bad.load(), 0);
    EXPECT_EQ(domain.collect(), 0);
    EXPECT_EQ(living.load(), 1);
    delete published.load();
  }
  EXPECT_EQ(living.load(), 0);
}

TEST(StripedCounter, CountsEveryAdditionOfManyThreads) {
  StripedCounter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 20; ++i) {  // more threads than stripes
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) {
        counter.add();
      }
      counter.add(7);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(counter.value(), 20 * 1007);
}

TEST(StripedCounter, BeginsAtZeroAgainAfterReset) {
  StripedCounter counter;
  counter.add(5);
  counter.reset();
  EXPECT_EQ(counter.value(), 0);
  counter.add();
  EXPECT_EQ(counter.value(), 1);
}

}  // namespace
}  // namespace sconce
