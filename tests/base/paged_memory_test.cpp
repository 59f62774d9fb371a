#include "base/paged_memory.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace sconce::testing {
namespace {

constexpr size_t kBytes = 1'000'000;

std::vector<char> random_bytes(size_t count) {
  std::vector<char> bytes(count);
  uint64_t state = 1;
  for (char& each : bytes) {
    state = state * 6364136223846793005U + 1;
    each = static_cast<char>(state >> 56);
  }
  return bytes;
}

PagedMemory& memory_of(const c10::DataPtr& pointer) { return *static_cast<PagedMemory*>(pointer.get_context()); }

// Returns how many bytes are resident in whole pages of the memory.
size_t resident_bytes(const c10::DataPtr& pointer, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(pointer.get()) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(pointer.get()) + bytes) / page * page;
  std::ifstream smaps("/proc/self/smaps");
  size_t resident = 0;
  bool is_inside = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t first = 0;
    uintptr_t last = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2) {
      is_inside = first < end && last > begin;
    } else if (is_inside && line.starts_with("Rss:")) {
      resident += std::stoul(line.substr(4)) << 10;
    }
  }
  return resident;
}

// Memory with the bytes.
c10::DataPtr paged(const std::vector<char>& bytes) {
  c10::DataPtr pointer = PagedMemory::allocate(bytes.size());
  std::memcpy(pointer.get(), bytes.data(), bytes.size());
  return pointer;
}

TEST(PagedMemory, PagesLeaveAndComeBack) {
  const std::vector<char> bytes = random_bytes(kBytes);
  const c10::DataPtr pointer = paged(bytes);
  for (int time = 0; time < 3; ++time) {
    EXPECT_GE(resident_bytes(pointer, kBytes), kBytes / 2);
    EXPECT_EQ(memory_of(pointer).page_out(), kBytes);
    EXPECT_LE(resident_bytes(pointer, kBytes), kBytes / 10);
    EXPECT_EQ(std::memcmp(pointer.get(), bytes.data(), kBytes), 0);
  }
}

TEST(PagedMemory, KeepsWhatWasWritten) {
  std::vector<char> expected = random_bytes(kBytes);
  const c10::DataPtr pointer = paged(expected);
  for (const size_t position : {size_t{0}, kBytes / 3, kBytes - 1}) {
    for (int time = 0; time < 2; ++time) {
      expected[position] = static_cast<char>(expected[position] + 1);
      static_cast<char*>(pointer.get())[position] = expected[position];
      memory_of(pointer).page_out();
      EXPECT_EQ(std::memcmp(pointer.get(), expected.data(), kBytes), 0);
    }
  }
}

TEST(PagedMemory, KeptPagesStayForGood) {
  const std::vector<char> bytes = random_bytes(kBytes);
  const c10::DataPtr pointer = paged(bytes);
  EXPECT_EQ(memory_of(pointer).page_out(), kBytes);
  static_cast<char*>(pointer.get())[kBytes / 2] ^= 1;
  memory_of(pointer).keep();
  static_cast<char*>(pointer.get())[kBytes / 2] ^= 1;
  EXPECT_EQ(memory_of(pointer).page_out(), 0U);
  EXPECT_EQ(memory_of(pointer).bytes_in_file(), 0U);
  EXPECT_GE(resident_bytes(pointer, kBytes), kBytes / 2);
  EXPECT_EQ(std::memcmp(pointer.get(), bytes.data(), kBytes), 0);
}

TEST(PagedMemory, PagesKeptBeforehandDoNotLeave) {
  const c10::DataPtr pointer = paged(random_bytes(kBytes));
  memory_of(pointer).keep();
  EXPECT_EQ(memory_of(pointer).page_out(), 0U);
}

// A limit of the size of files stands for a full disk.
TEST(PagedMemory, WithoutAFilePagesStay) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  c10::DataPtr pointer = PagedMemory::allocate(kBytes);
  std::memset(pointer.get(), 7, kBytes);
  const rlimit small = {1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_EQ(memory_of(pointer).page_out(), 0U);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(static_cast<char*>(pointer.get())[kBytes - 1], 7);
  EXPECT_EQ(memory_of(pointer).page_out(), kBytes);
  EXPECT_EQ(static_cast<char*>(pointer.get())[kBytes - 1], 7);
}

TEST(PagedMemory, OthersReadWhilePagesLeave) {
  const std::vector<char> bytes = random_bytes(kBytes);
  const c10::DataPtr pointer = paged(bytes);
  std::atomic<bool> is_done = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> readers;
  for (int thread = 0; thread < 2; ++thread) {
    readers.emplace_back([&] {
      while (!is_done) {
        wrong += std::memcmp(pointer.get(), bytes.data(), kBytes) != 0;
      }
    });
  }
  for (int time = 0; time < 100; ++time) {
    memory_of(pointer).page_out();
  }
  is_done = true;
  for (std::thread& each : readers) {
    each.join();
  }
  EXPECT_EQ(wrong, 0);
}

TEST(MakePaged, KeepsTheElementsAndLeavesOtherMemoryAlone) {
  const at::Tensor large = at::rand({300, 300});
  const at::Tensor copy = large.clone();
  const at::Tensor small = at::rand({10});
  std::vector<float> foreign(kBytes);
  const at::Tensor of_program = at::from_blob(foreign.data(), {static_cast<int64_t>(kBytes)});
  for (const at::Tensor& each : {large, large.t(), small, of_program}) {
    make_paged(*each.storage().unsafeGetStorageImpl());
  }
  ASSERT_NE(PagedMemory::of(large.storage().data_ptr()), nullptr);
  EXPECT_GT(PagedMemory::of(large.storage().data_ptr())->page_out(), 0U);
  EXPECT_TRUE(at::equal(large, copy));
  EXPECT_EQ(PagedMemory::of(small.storage().data_ptr()), nullptr);
  EXPECT_EQ(of_program.data_ptr(), foreign.data());
}

TEST(EmptyPagedLike, IsLaidOutAsEmptyLikeIs) {
  const at::Tensor image = at::rand({4, 16, 60, 60});
  const at::Tensor last = image.contiguous(at::MemoryFormat::ChannelsLast);
  for (const at::Tensor& like : {image, last, image.transpose(1, 2), image.slice(3, 0, 50), image.to(at::kDouble)}) {
    at::Tensor paged = empty_paged_like(like);
    EXPECT_EQ(paged.strides(), at::empty_like(like).strides());
    ASSERT_NE(PagedMemory::of(paged.storage().data_ptr()), nullptr);
    paged.copy_(like);
    EXPECT_GT(PagedMemory::of(paged.storage().data_ptr())->page_out(), 0U);
    EXPECT_TRUE(at::equal(paged, like));
    paged.resize_({200, 16, 60, 60});
    EXPECT_EQ(paged.dtype(), like.dtype());
  }
  EXPECT_EQ(empty_paged_like(image, at::MemoryFormat::ChannelsLast).strides(), last.strides());
  const at::Tensor small = empty_paged_like(at::rand({10}));
  EXPECT_EQ(PagedMemory::of(small.storage().data_ptr()), nullptr);
}

}  // namespace
}  // namespace sconce::testing
