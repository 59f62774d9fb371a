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

  void add_test_program(const std::string& name, const std::string& body) {
    const fs::path path = out_ / "root" / "tests" / name;
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
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

// A test program's last argument is --gtest_output=json:FILE.
const char* const kPassing = "f=${1#--gtest_output=json:}; echo '{\"tests\": 3, \"testsuites\": []}' > \"$f\"";

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

TEST_F(GpuCheckTest, RunsProgramsAndKeepsWhatTheyReport) {
  add_test_program("a_test", kPassing);
  add_test_program("b_test", "echo something went wrong; exit 3");
  EXPECT_EQ(run("--only test:"), 1) << output();
  EXPECT_EQ(parts().at("test:a_test").at("status"), "passed");
  EXPECT_EQ(parts().at("test:a_test").at("data").at("tests"), 3);
  EXPECT_EQ(parts().at("test:b_test").at("status"), "failed");
  EXPECT_EQ(parts().at("test:b_test").at("exit_code"), 3);
  EXPECT_NE(parts().at("test:b_test").at("output_tail").get<std::string>().find("something went wrong"), std::string::npos);
}

TEST_F(GpuCheckTest, EndsAProgramAtTheTimeLimitAndRunsItAgainWhenResumed) {
  add_test_program("a_test", std::string("echo run >> ") + out_.string() + "/a_runs; " + kPassing);
  add_test_program("z_test", "sleep 60");
  EXPECT_EQ(run("--only test: --budget 4"), 1) << output();
  EXPECT_EQ(parts().at("test:z_test").at("status"), "unfinished");

  fs::rename(out_ / "gpu_check.json", out_ / "earlier.json");
  fs::remove(out_ / "root" / "tests" / "z_test");
  add_test_program("z_test", kPassing);
  EXPECT_EQ(run("--only test: --resume " + out_.string() + "/earlier.json"), 0) << output();
  EXPECT_EQ(parts().at("test:z_test").at("status"), "passed");
  EXPECT_EQ(fs::file_size(out_ / "a_runs"), std::string("run\n").size()) << "a finished part is not run again";
}

TEST_F(GpuCheckTest, RunsAgainWhatWasBuiltAnew) {
  add_test_program("a_test", "exit 1");
  EXPECT_EQ(run("--only test:"), 1);
  fs::rename(out_ / "gpu_check.json", out_ / "earlier.json");
  add_test_program("a_test", kPassing);
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
