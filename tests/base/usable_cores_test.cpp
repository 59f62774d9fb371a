#include "base/usable_cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

namespace sconce {
namespace {

// A tree of cgroups.
class CpuQuota : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::filesystem::path& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  double quota() const { return cpu_quota(root_, root_ / "membership"); }

  const std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("sconce_cpu_quota_" + std::to_string(::getpid()));
};

TEST_F(CpuQuota, IsInfiniteWithoutAQuota) {
  EXPECT_EQ(quota(), HUGE_VAL);
  write("membership", "0::/a/b\n");
  EXPECT_EQ(quota(), HUGE_VAL);
  write("a/cpu.max", "max 100000\n");
  write("a/b/cpu.max", "not a number\n");
  EXPECT_EQ(quota(), HUGE_VAL);
}

TEST_F(CpuQuota, OfVersion2IsTheLeastOfThoseAround) {
  write("membership", "0::/a/b\n");
  write("a/cpu.max", "150000 100000\n");
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(CpuQuota, OfVersion1IsOfTheCpuController) {
  write("membership", "3:cpuset:/other\n2:cpuacct,cpu:/a\n1:memory\n");
  write("cpu/a/cpu.cfs_quota_us", "-1\n");
  write("cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), HUGE_VAL);
  write("cpu/a/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(quota(), 2.5);
}

// The path is the host's.
TEST_F(CpuQuota, OfAContainerIsThatOfTheRoot) {
  write("membership", "0::/docker/1234\n");
  write("cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2.0);
}

TEST(UsableCores, AreAtLeastOne) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace sconce
