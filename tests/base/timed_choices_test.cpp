#include "base/timed_choices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sconce {
namespace {

class TimedChoicesTest : public ::testing::Test {
 protected:
  ~TimedChoicesTest() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ = ::testing::TempDir() + "timed_choices_test_" + std::to_string(getpid());
};

TEST_F(TimedChoicesTest, AreKeptFromProcessToProcess) {
  TimedChoices first(folder_);
  EXPECT_FALSE(first.find("aten::mm of two matrices"));
  first.note("aten::mm of two matrices", {.kernel = 2e-3, .op = 1e-3});
  TimedChoices second(folder_);
  const auto found = second.find("aten::mm of two matrices");
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->kernel, 2e-3);
  EXPECT_DOUBLE_EQ(found->op, 1e-3);
  EXPECT_FALSE(second.find("aten::mm of two others"));
}

TEST_F(TimedChoicesTest, AreTimedAgainIfAFileIsDamaged) {
  TimedChoices(folder_).note("key", {.kernel = 1, .op = 2});
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    std::ofstream(file.path()) << "not a choice";
  }
  EXPECT_FALSE(TimedChoices(folder_).find("key"));
}

TEST_F(TimedChoicesTest, StayInTheProcessWithoutAFolder) {
  TimedChoices choices("");
  choices.note("key", {.kernel = 1, .op = 2});
  EXPECT_TRUE(choices.find("key"));
  EXPECT_FALSE(TimedChoices("").find("key"));
}

TEST(TimedChoices, PreferTheKernelUnlessItIsClearlySlower) {
  EXPECT_FALSE((TimedChoices::Times{.kernel = 1.1, .op = 1}.is_kernel_slower()));
  EXPECT_TRUE((TimedChoices::Times{.kernel = 1.2, .op = 1}.is_kernel_slower()));
}

}  // namespace
}  // namespace sconce
