// Kernels kept on disk: used again, renewed when damaged, and never needed.
#include "fusion/cpu/cpu_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace sconce {
namespace {

namespace fs = std::filesystem;

class ObjectCacheTest : public ::testing::Test {
 protected:
  ObjectCacheTest() : directory_(fs::temp_directory_path() / ("sconce_kernels_" + std::to_string(::getpid()))) {
    fs::remove_all(directory_);
  }
  ~ObjectCacheTest() override { fs::remove_all(directory_); }

  // Compiles a function that returns `number`, and calls it.
  int64_t compile_and_call(int64_t number) const {
    const KernelText kernel{.text = "define i64 @number() {\n  ret i64 " + std::to_string(number) + "\n}\n",
                            .functions = {"number"},
                            .cache_directory = directory_.string()};
    const auto code = compile_cpu_kernel(kernel);
    EXPECT_TRUE(code) << code.refusal().reason;
    return code ? reinterpret_cast<int64_t (*)()>((*code)->address("number"))() : -1;
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      found.push_back(entry.path());
    }
    return found;
  }
  static std::string content_of(const fs::path& path) {
    std::ostringstream content;
    content << std::ifstream(path, std::ios::binary).rdbuf();
    return content.str();
  }
  static void write(const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }

  // Runs `action` in a process of its own. Returns its number.
  template <typename Action>
  static pid_t start(const Action& action) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(action() ? 0 : 1);
    }
    return child;
  }
  static bool all_succeed(const std::vector<pid_t>& children) {
    bool succeed = true;
    for (const pid_t child : children) {
      int status = -1;
      succeed = ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 && succeed;
    }
    return succeed;
  }

  const fs::path directory_;
};

int64_t returns_three() { return 3; }
int64_t returns_four() { return 4; }

// Another process has its functions elsewhere.
TEST_F(ObjectCacheTest, KeepsNamesOfFunctionsAndNoAddresses) {
  const auto call = [&](int64_t (*function)()) {
    const KernelText kernel{
        .text = "declare i64 @given()\ndefine i64 @kernel() {\n  %v = call i64 @given()\n  ret i64 %v\n}\n",
        .functions = {"kernel"},
        .cache_directory = directory_.string(),
        .symbols = {{"given", reinterpret_cast<void*>(function)}}};
    const auto code = compile_cpu_kernel(kernel);
    EXPECT_TRUE(code) << code.refusal().reason;
    return code ? reinterpret_cast<int64_t (*)()>((*code)->address("kernel"))() : -1;
  };
  EXPECT_EQ(call(returns_three), 3);
  EXPECT_EQ(call(returns_four), 4);
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(ObjectCacheTest, KeepsOneFilePerKernel) {
  EXPECT_EQ(compile_and_call(7), 7);
  EXPECT_EQ(compile_and_call(8), 8);
  EXPECT_EQ(compile_and_call(7), 7);
  EXPECT_EQ(files().size(), 2U);
}

TEST_F(ObjectCacheTest, RunsTheCodeOfTheFile) {
  compile_and_call(7);
  const fs::path seven = files().front();
  const std::string kept = content_of(seven);
  fs::remove(seven);
  compile_and_call(8);
  const fs::path eight = files().front();
  // A file under the name of another kernel has another key.
  write(eight, kept);
  EXPECT_EQ(compile_and_call(8), 8);
  EXPECT_NE(content_of(eight), kept) << "the file was not renewed";
  // Under its own name it is used as it is.
  write(seven, kept);
  const auto written = fs::last_write_time(seven) - std::chrono::hours(1);
  fs::last_write_time(seven, written);
  EXPECT_EQ(compile_and_call(7), 7);
  EXPECT_EQ(content_of(seven), kept);
  EXPECT_GT(fs::last_write_time(seven), written) << "the use was not noted";
}

TEST_F(ObjectCacheTest, RenewsDamagedFiles) {
  compile_and_call(7);
  const fs::path file = files().front();
  const std::string kept = content_of(file);
  for (const size_t position : {size_t{0}, size_t{16}, kept.size() / 2, kept.size() - 1}) {
    std::string damaged = kept;
    damaged[position] = static_cast<char>(damaged[position] ^ 0x20);
    write(file, damaged);
    EXPECT_EQ(compile_and_call(7), 7);
    EXPECT_EQ(content_of(file), kept) << "damage at " << position;
  }
  for (const size_t length : {size_t{0}, size_t{10}, size_t{20}, kept.size() / 2}) {
    write(file, kept.substr(0, length));
    EXPECT_EQ(compile_and_call(7), 7);
    EXPECT_EQ(content_of(file), kept) << "cut at " << length;
  }
}

TEST_F(ObjectCacheTest, KeepsNothingOnAFullDisk) {
  const auto compiles = [this] {
    struct rlimit none = {64, 64};  // bytes of a file
    ::signal(SIGXFSZ, SIG_IGN);
    return ::setrlimit(RLIMIT_FSIZE, &none) == 0 && compile_and_call(7) == 7;
  };
  EXPECT_TRUE(all_succeed({start(compiles)}));
  EXPECT_TRUE(files().empty()) << "a part of a file was kept";
  EXPECT_EQ(compile_and_call(7), 7);
  EXPECT_EQ(files().size(), 1u);
}

// Each process writes the entry, reads that of another, or finds that another has removed it.
TEST_F(ObjectCacheTest, MayBeWrittenByManyProcesses) {
  compile_and_call(7);
  const fs::path file = files().front();
  const std::string kept = content_of(file);
  const auto compiles_often = [&] {
    bool is_right = true;
    for (int i = 0; i < 20; ++i) {
      is_right = is_right && compile_and_call(7) == 7;
      std::error_code vanished;
      fs::remove(file, vanished);
    }
    return is_right && compile_and_call(7) == 7;
  };
  EXPECT_TRUE(all_succeed({start(compiles_often), start(compiles_often), start(compiles_often)}));
  EXPECT_EQ(compile_and_call(7), 7);
  EXPECT_EQ(files(), std::vector<fs::path>{file});
  EXPECT_EQ(content_of(file), kept);
}

TEST_F(ObjectCacheTest, CompilesWhereNothingCanBeKept) {
  write(directory_, "a file in the place of the directory");
  EXPECT_EQ(compile_and_call(7), 7);
  EXPECT_EQ(content_of(directory_), "a file in the place of the directory");
}

TEST_F(ObjectCacheTest, LeavesDirectoriesAloneThatOthersMayWrite) {
  fs::create_directories(directory_);
  ASSERT_EQ(::chmod(directory_.c_str(), 0777), 0);
  EXPECT_EQ(compile_and_call(7), 7);
  EXPECT_THAT(files(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace sconce
