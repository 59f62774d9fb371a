// Large blocks: kept, given out again, and freed.
#include "plan/large_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  EXPECT_EQ(free_kept_blocks(), kMiB + kMiB + 1 + kMiB / 3);
  EXPECT_EQ(free_kept_blocks(), 0);
}

TEST(LargeBlocks, OfAnySizeServeWhereThereIsNoRoomForOthers) {
  forget_demand();
  free_kept_blocks();
  c10::DataPtr block = allocate_large(4 * kMiB);
  void* const largest = block.get();
  block.clear();
  std::vector<c10::DataPtr> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(allocate_large(kMiB));
    EXPECT_NE(others.back().get(), largest);
  }
  others.push_back(allocate_large(kMiB));  // beyond twice what was in use at one time
  EXPECT_EQ(others.back().get(), largest);
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
  EXPECT_LE(free_kept_blocks(), 4 * kMiB);
}

// Layers of a network need blocks of many sizes, one after the other.
TEST(LargeBlocks, OfOneRunServeTheNext) {
  forget_demand();
  free_kept_blocks();
  std::vector<void*> before;
  for (int run = 0; run < 6; ++run) {
    std::vector<void*> used;
    c10::DataPtr input;
    for (const size_t bytes : {16 * kMiB, 4 * kMiB, 6 * kMiB, kMiB, 3 * kMiB / 2, kMiB / 4, kMiB / 2, kMiB / 8}) {
      c10::DataPtr output = allocate_large(bytes);
      used.push_back(output.get());
      input = std::move(output);
    }
    input.clear();
    for (void* const block : used) {
      EXPECT_TRUE(run < 3 || std::ranges::count(before, block) > 0) << "fresh pages in run " << run;
    }
    before.insert(before.end(), used.begin(), used.end());
  }
  EXPECT_LE(free_kept_blocks(), 40 * kMiB);
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
