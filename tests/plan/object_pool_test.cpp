#include "plan/object_pool.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace sconce {
namespace {

TEST(ObjectPool, IsEmptyAtFirstAndGivesBackWhatItGot) {
  ObjectPool<int> pool;
  EXPECT_EQ(pool.take(), nullptr);
  auto made = std::make_unique<int>(7);
  const int* address = made.get();
  pool.give_back(std::move(made));
  const auto again = pool.take();
  EXPECT_EQ(again.get(), address);
  EXPECT_EQ(pool.take(), nullptr) << "it was taken";
}

struct Counted {
  static inline std::atomic<int> living{0};
  Counted() { ++living; }
  ~Counted() { --living; }
  std::atomic<int> holders{0};
};

TEST(ObjectPool, GivesAnObjectToWhoHadIt) {
  ObjectPool<int> pool;
  pool.give_back(std::make_unique<int>(1), 11);
  pool.give_back(std::make_unique<int>(2), 12);
  EXPECT_EQ(pool.take(13), nullptr);
  EXPECT_EQ(*pool.take(12), 2);
  EXPECT_EQ(*pool.take_any(), 1);
  EXPECT_EQ(pool.take_any(), nullptr);
}

TEST(ObjectPool, DestroysWhatExceedsItsSlotsAndTheRestWithItself) {
  {
    ObjectPool<Counted> pool;
    for (size_t i = 0; i < ObjectPool<Counted>::kSlots + 10; ++i) {
      pool.give_back(std::make_unique<Counted>());
    }
    EXPECT_EQ(Counted::living, static_cast<int>(ObjectPool<Counted>::kSlots));
    for (size_t i = 0; i < ObjectPool<Counted>::kSlots; ++i) {
      EXPECT_NE(pool.take(), nullptr);
    }
    EXPECT_EQ(Counted::living, 0);
    pool.give_back(std::make_unique<Counted>());
  }
  EXPECT_EQ(Counted::living, 0);
}

TEST(ObjectPool, DestroysOnceItIsClosedWhatItHasAndWhatItIsGiven) {
  ObjectPool<Counted> pool;
  auto taken = std::make_unique<Counted>();
  pool.give_back(std::make_unique<Counted>());
  pool.close();
  EXPECT_EQ(Counted::living, 1);
  EXPECT_EQ(pool.take(), nullptr);
  pool.give_back(std::move(taken));
  EXPECT_EQ(Counted::living, 0);
  EXPECT_EQ(pool.take(), nullptr);
}

TEST(ObjectPool, MayBeClosedWhileThreadsUseIt) {
  for (int round = 0; round < 100; ++round) {
    ObjectPool<Counted> pool;
    std::atomic<int> rounds{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i, ++rounds) {
          auto object = pool.take();
          pool.give_back(object ? std::move(object) : std::make_unique<Counted>());
        }
      });
    }
    while (rounds < 100) {
      std::this_thread::yield();
    }
    pool.close();
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(Counted::living, 0);
  }
}

TEST(ObjectPool, NeverGivesOneObjectToTwoThreads) {
  {
    ObjectPool<Counted> pool;
    std::atomic<int> shared{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20000; ++i) {
          auto object = pool.take();
          if (!object) {
            object = std::make_unique<Counted>();
          }
          shared += object->holders.fetch_add(1) == 0 ? 0 : 1;
          object->holders.fetch_sub(1);
          pool.give_back(std::move(object));
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(shared.load(), 0);
    EXPECT_LE(Counted::living, 8);
  }
  EXPECT_EQ(Counted::living, 0) << "nothing leaked";
}

}  // namespace
}  // namespace sconce
