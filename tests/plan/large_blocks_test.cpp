// Large blocks: kept, given out again, and freed.
#include "plan/large_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace sconce {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Lets the process forget what was in use before.
void forget_demand() {
  for (uint64_t i = 0; i < 2 * kFreesCounted; ++i) {
    allocate_large(kMiB).clear();
  }
}

TEST(LargeBlocks, AreGivenOutAgain) {
  forget_demand();
  free_kept_blocks();
  c10::DataPtr block = allocate_large(kMiB);
  void* const first = block.get();
  std::memset(first, 1, kMiB);
  const c10::DataPtr other = allocate_large(kMiB);  // while the first is in use
  EXPECT_NE(other.get(), first);
  block.clear();
  EXPECT_EQ(allocate_large(kMiB * 3 / 4).get(), first);
  EXPECT_NE(allocate_large(kMiB + 1).get(), first) << "too small";
  EXPECT_NE(allocate_large(kMiB / 3).get(), first) << "much too large";
  EXPECT_EQ(free_kept_blocks(), kMiB + 1 + kMiB / 3) << "the oldest made room: two blocks were in use at one time";
  EXPECT_EQ(free_kept_blocks(), 0);
}

TEST(LargeBlocks, AreKeptUpToALimit) {
  free_kept_blocks();
  constexpr size_t kBlock = kMaxBytesKept / 4;
  std::vector<c10::DataPtr> blocks;
  for (int i = 0; i < 6; ++i) {
    blocks.push_back(allocate_large(kBlock));
  }
  const void* const last = blocks.back().get();
  for (c10::DataPtr& block : blocks) {
    block.clear();
  }
  EXPECT_EQ(allocate_large(kBlock).get(), last);
  EXPECT_EQ(free_kept_blocks(), kMaxBytesKept);
  allocate_large(kMaxBytesKept + 1).clear();
  EXPECT_EQ(free_kept_blocks(), 0);
}

TEST(LargeBlocks, AreKeptAsManyAsWereInUseAtOneTime) {
  forget_demand();
  free_kept_blocks();
  for (size_t bytes = 64 * 1024; bytes <= kMiB; bytes += 64 * 1024) {
    const c10::DataPtr one = allocate_large(bytes);
    const c10::DataPtr two = allocate_large(bytes);
  }
  EXPECT_LE(free_kept_blocks(), 2 * kMiB);
}

TEST(LargeBlocks, ThatNoRunAsksForAreFreed) {
  free_kept_blocks();
  allocate_large(8 * kMiB).clear();
  forget_demand();
  EXPECT_EQ(free_kept_blocks(), kMiB);
}

TEST(LargeBlocks, ServeManyThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (size_t k = 0; k < 500; ++k) {
        const size_t bytes = 32 * 1024 * (1 + k % 7);
        const c10::DataPtr block = allocate_large(bytes);
        std::memset(block.get(), i, bytes);
        const auto* elements = static_cast<const char*>(block.get());
        ASSERT_TRUE(elements[0] == i && elements[bytes - 1] == i);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  free_kept_blocks();
}

}  // namespace
}  // namespace sconce
