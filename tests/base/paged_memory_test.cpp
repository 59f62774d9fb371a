#include "base/paged_memory.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
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

class PagedMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "paged_memory_test_" + std::to_string(getpid());
    std::ofstream(path_, std::ios::binary).write(file_.data(), static_cast<std::streamsize>(file_.size()));
  }
  void TearDown() override { std::filesystem::remove(path_); }

  c10::DataPtr copy_of_file() const {
    return PagedMemory::copy(file_.data() + kOffset, kBytes, open_source(path_), kOffset);
  }

  static constexpr uint64_t kOffset = 64 * 77;
  const std::vector<char> file_ = random_bytes(kOffset + kBytes + 100);
  std::string path_;
};

TEST_F(PagedMemoryTest, PagesLeaveAndComeBack) {
  const std::vector<char> bytes = random_bytes(kBytes);
  c10::DataPtr temporary = PagedMemory::allocate(kBytes);
  std::memcpy(temporary.get(), bytes.data(), kBytes);
  const c10::DataPtr of_file = copy_of_file();
  for (int time = 0; time < 3; ++time) {
    for (const c10::DataPtr* each : std::initializer_list<const c10::DataPtr*>{&temporary, &of_file}) {
      EXPECT_GE(resident_bytes(*each, kBytes), kBytes / 2);
      EXPECT_EQ(memory_of(*each).page_out(), kBytes);
      EXPECT_LE(resident_bytes(*each, kBytes), kBytes / 10);
      const char* const expected = each == &temporary ? bytes.data() : file_.data() + kOffset;
      EXPECT_EQ(std::memcmp(each->get(), expected, kBytes), 0);
    }
  }
}

TEST_F(PagedMemoryTest, KeepsWhatWasWritten) {
  c10::DataPtr temporary = PagedMemory::allocate(kBytes);
  std::memset(temporary.get(), 1, kBytes);
  const c10::DataPtr of_file = copy_of_file();
  for (const c10::DataPtr* each : std::initializer_list<const c10::DataPtr*>{&temporary, &of_file}) {
    std::vector<char> expected(static_cast<char*>(each->get()), static_cast<char*>(each->get()) + kBytes);
    for (const size_t position : {size_t{0}, kBytes / 3, kBytes - 1}) {
      for (int time = 0; time < 2; ++time) {
        expected[position] = static_cast<char>(expected[position] + 1);
        static_cast<char*>(each->get())[position] = expected[position];
        memory_of(*each).page_out();
        EXPECT_EQ(std::memcmp(each->get(), expected.data(), kBytes), 0);
      }
    }
  }
}

TEST_F(PagedMemoryTest, KeptPagesStayForGood) {
  const c10::DataPtr of_file = copy_of_file();
  EXPECT_EQ(memory_of(of_file).page_out(), kBytes);
  static_cast<char*>(of_file.get())[kBytes / 2] ^= 1;
  memory_of(of_file).keep();
  std::filesystem::resize_file(path_, 0);
  static_cast<char*>(of_file.get())[kBytes / 2] ^= 1;
  EXPECT_EQ(memory_of(of_file).page_out(), 0U);
  EXPECT_EQ(memory_of(of_file).bytes_in_file(), 0U);
  EXPECT_EQ(std::memcmp(of_file.get(), file_.data() + kOffset, kBytes), 0);
}

TEST_F(PagedMemoryTest, PagesKeptBeforehandDoNotLeave) {
  const c10::DataPtr of_file = copy_of_file();
  memory_of(of_file).keep();
  EXPECT_EQ(memory_of(of_file).page_out(), 0U);
}

// Small enough to be compared at once, and written: then no call maps a page, and most still come from the file.
TEST_F(PagedMemoryTest, KeepsPagesOfAnEarlierCall) {
  constexpr size_t kSmall = 100'000;
  const c10::DataPtr pointer = PagedMemory::copy(file_.data() + kOffset, kSmall, open_source(path_), kOffset);
  EXPECT_GT(memory_of(pointer).page_out(), 0U);
  static_cast<char*>(pointer.get())[0] ^= 1;
  EXPECT_EQ(memory_of(pointer).page_out(), 0U);
  memory_of(pointer).keep();
  std::filesystem::resize_file(path_, 0);
  static_cast<char*>(pointer.get())[0] ^= 1;
  EXPECT_EQ(std::memcmp(pointer.get(), file_.data() + kOffset, kSmall), 0);
}

TEST_F(PagedMemoryTest, AFileThatChangedIsNotMapped) {
  const c10::DataPtr whole = copy_of_file();
  std::filesystem::resize_file(path_, kOffset + kBytes / 2);
  const size_t paged = memory_of(whole).page_out();
  EXPECT_GT(paged, 0U);
  EXPECT_LE(paged, kBytes / 2 + 4096);
  EXPECT_EQ(std::memcmp(whole.get(), file_.data() + kOffset, kBytes), 0);
}

// Replacing the file by renaming, and removing it, does no harm.
TEST_F(PagedMemoryTest, AReplacedFileIsStillRead) {
  const c10::DataPtr pointer = copy_of_file();
  EXPECT_EQ(memory_of(pointer).page_out(), kBytes);
  std::ofstream(path_ + ".new", std::ios::binary) << "another";
  std::filesystem::rename(path_ + ".new", path_);
  EXPECT_EQ(std::memcmp(pointer.get(), file_.data() + kOffset, kBytes), 0);
  std::filesystem::remove(path_);
  EXPECT_EQ(memory_of(pointer).page_out(), kBytes);
  EXPECT_EQ(std::memcmp(pointer.get(), file_.data() + kOffset, kBytes), 0);
}

// A limit of the size of files stands for a full disk.
TEST_F(PagedMemoryTest, WithoutAFilePagesStay) {
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

TEST_F(PagedMemoryTest, OthersReadWhilePagesLeave) {
  const c10::DataPtr of_file = copy_of_file();
  c10::DataPtr temporary = PagedMemory::allocate(kBytes);
  std::memcpy(temporary.get(), file_.data() + kOffset, kBytes);
  std::atomic<bool> is_done = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> readers;
  for (const c10::DataPtr* each : std::initializer_list<const c10::DataPtr*>{&of_file, &temporary}) {
    readers.emplace_back([&, each] {
      while (!is_done) {
        wrong += std::memcmp(each->get(), file_.data() + kOffset, kBytes) != 0;
      }
    });
  }
  for (int time = 0; time < 100; ++time) {
    memory_of(of_file).page_out();
    memory_of(temporary).page_out();
  }
  is_done = true;
  for (std::thread& each : readers) {
    each.join();
  }
  EXPECT_EQ(wrong, 0);
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
