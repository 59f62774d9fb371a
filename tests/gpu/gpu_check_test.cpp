// The program gpu_check itself, on its simulated GPU: needs no GPU, only NVRTC.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <sys/wait.h>

namespace sconce {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class GpuCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("SCONCE_BIN_DIR");
    program_ = folder == nullptr ? "" : std::string(folder) + "/gpu_check";
    if (!fs::exists(program_)) {
      GTEST_SKIP() << "bin/gpu_check is not there (it wants CUDA's headers), or SCONCE_BIN_DIR is not set";
    }
    std::string pattern = fs::temp_directory_path() / "sconce_gpu_check_XXXXXX";
    out_ = mkdtemp(pattern.data());
    fs::create_directories(out_ / "root" / "tests");
  }
  void TearDown() override {
    if (!out_.empty()) {
      fs::remove_all(out_);
    }
  }

  // A program with the tests S.A and S.B, in the way of GoogleTest. `of_test`: what it does for the test $t.
  void add_test_program(const std::string& name, const std::string& of_test) {
    const fs::path path = out_ / "root" / "tests" / name;
    std::ofstream(path) << R"sh(#!/bin/sh
for argument in "$@"; do
  case $argument in
    --gtest_list_tests) printf 'S.\n  A\n  B  # GetParam() = 1\n'; exit 0 ;;
    --gtest_filter=*) tests=${argument#--gtest_filter=} ;;
  esac
done
for t in $(echo "$tests" | tr : ' '); do
  echo "[ RUN      ] $t"
)sh" << of_test << R"sh(
  echo "[       OK ] $t (5 ms)"
done
)sh";
    fs::permissions(path, fs::perms::owner_all);
  }

  int run(const std::string& arguments) {
    const std::string out = out_.string();
    const std::string command =
        program_ + " --simulate --root " + out + "/root --out " + out + " " + arguments + " > " + out + "/stdout 2>&1";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  json parts() const { return json::parse(std::ifstream(out_ / "gpu_check.json")).at("parts"); }
  std::string output() const {
    std::ifstream file(out_ / "stdout");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string program_;
  fs::path out_;
};

TEST_F(GpuCheckTest, PassesItsChecksOnTheSimulatedGpu) {
  EXPECT_EQ(run(""), 0) << output();
  for (const char* part : {"kernel", "recording", "failed_recording", "launch_time", "bandwidth"}) {
    const json result = parts().at(part);
    if (result.at("status") == "skipped") {
      GTEST_SKIP() << result.at("reason");
    }
    EXPECT_EQ(result.at("status"), "passed") << part << ": " << result;
  }
}

TEST_F(GpuCheckTest, GivesEachTestAResult) {
  add_test_program("a_test", "echo run >> " + out_.string() + "/runs");
  EXPECT_EQ(run("--only test:"), 0) << output();
  EXPECT_EQ(parts().at("test:a_test/S.A").at("status"), "passed");
  EXPECT_EQ(parts().at("test:a_test/S.B").at("status"), "passed");
}

// What comes after a failure or a crash runs in a process of its own.
TEST_F(GpuCheckTest, GoesOnAfterAFailure) {
  for (const std::string end :
       {"echo '[  FAILED  ] S.A, where GetParam() = 1 (3 ms)'; sleep 60", "kill -SEGV $$", "exit 3"}) {
    add_test_program("a_test", "[ $t = S.A ] && { echo something went wrong; " + end + "; }");
    EXPECT_EQ(run("--only test:"), 1) << output();
    const json failed = parts().at("test:a_test/S.A");
    EXPECT_EQ(failed.at("status"), "failed") << end;
    EXPECT_NE(failed.at("output_tail").get<std::string>().find("something went wrong"), std::string::npos);
    EXPECT_EQ(parts().at("test:a_test/S.B").at("status"), "passed") << end;
  }
}

TEST_F(GpuCheckTest, SaysThatAProgramDoesNotStart) {
  add_test_program("a_test", "");
  const fs::path path = out_ / "root" / "tests" / "b_test";
  std::ofstream(path) << "#!/bin/sh\nexit 127\n";
  fs::permissions(path, fs::perms::owner_all);
  EXPECT_EQ(run("--only test:"), 1) << output();
  EXPECT_EQ(parts().at("test:b_test").at("status"), "failed");
}

TEST_F(GpuCheckTest, EndsATestAtItsLimitAndRunsTheNext) {
  add_test_program("a_test", "[ $t = S.A ] && sleep 60");
  EXPECT_EQ(run("--only test: --test-seconds 1"), 1) << output();
  EXPECT_EQ(parts().at("test:a_test/S.A").at("status"), "unfinished");
  EXPECT_EQ(parts().at("test:a_test/S.B").at("status"), "passed");
}

TEST_F(GpuCheckTest, RunsTestsFirstThatAreAskedFor) {
  add_test_program("a_test", "echo $t >> " + out_.string() + "/order");
  EXPECT_EQ(run("--only test: --first S.B"), 0) << output();
  std::ifstream order(out_ / "order");
  EXPECT_EQ((std::string{std::istreambuf_iterator<char>(order), {}}), "S.B\nS.A\n");
}

TEST_F(GpuCheckTest, TellsWhyATestIsSkipped) {
  add_test_program("a_test", "echo 'a.cpp:3: Skipped'; echo 'there is no GPU'; echo \"[  SKIPPED ] $t (0 ms)\"; exit 0");
  EXPECT_EQ(run("--only test: --except S.B"), 0) << output();
  EXPECT_EQ(parts().at("test:a_test/S.A").at("reason"), "there is no GPU");
  EXPECT_FALSE(parts().contains("test:a_test/S.B"));
}

TEST_F(GpuCheckTest, RunsUnfinishedTestsAgainWhenResumed) {
  add_test_program("a_test", "[ $t = S.B ] && sleep 60; echo run >> " + out_.string() + "/runs");
  EXPECT_EQ(run("--only test: --budget 4"), 1) << output();
  EXPECT_EQ(parts().at("test:a_test/S.B").at("status"), "unfinished");
  const json first = parts().at("test:a_test/S.A");

  json earlier = json::parse(std::ifstream(out_ / "gpu_check.json"));
  std::ofstream(out_ / "earlier.json") << earlier;
  EXPECT_EQ(run("--only test: --budget 4 --resume " + out_.string() + "/earlier.json"), 1) << output();
  EXPECT_EQ(parts().at("test:a_test/S.A"), first);
  EXPECT_EQ(fs::file_size(out_ / "runs"), std::string("run\n").size()) << "a finished test is not run again";
}

TEST_F(GpuCheckTest, RunsAgainWhatWasBuiltAnew) {
  add_test_program("a_test", "exit 1");
  EXPECT_EQ(run("--only test:"), 1);
  fs::rename(out_ / "gpu_check.json", out_ / "earlier.json");
  add_test_program("a_test", ":");
  EXPECT_EQ(run("--only test: --resume " + out_.string() + "/earlier.json"), 0) << output();
}

TEST_F(GpuCheckTest, SkipsProgramsWithoutLibTorchAndSaysWhy) {
  add_test_program("a_test", "exit 1");
  EXPECT_EQ(run("--only test: --no-libtorch 'it is not there'"), 0) << output();
  EXPECT_EQ(parts().at("test:a_test").at("status"), "skipped");
  EXPECT_EQ(parts().at("test:a_test").at("reason"), "it is not there");
}

TEST_F(GpuCheckTest, RefusesToResumeFromSomethingElse) {
  std::ofstream(out_ / "other.json") << "[1, 2]";
  EXPECT_EQ(run("--resume " + out_.string() + "/other.json"), 2);
}

}  // namespace
}  // namespace sconce
