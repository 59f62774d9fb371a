// An installation that lacks libsconce_llvm.so says so.
#include "tests/tools/sconce_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace sconce::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kReason = "libsconce_llvm.so: cannot open shared object file";
constexpr const char* kRemedy = "put the library beside libsconce.so, or install sconce again";
constexpr const char* kWarning = "sconce: warning: no kernels are compiled";

size_t count(const std::string& text, const std::string& part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++times;
  }
  return times;
}

// A folder with libsconce.so and nothing beside it. The library looks for its code generator beside itself.
class MissingKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    namespace fs = std::filesystem;
    const fs::path library = fs::path(sconce_binary()).parent_path().parent_path() / "lib" / "libsconce.so";
    ASSERT_TRUE(fs::exists(library)) << library;
    const std::string installed = scratch_.path() + "/lib";
    fs::create_directory(installed);
    fs::create_symlink(fs::absolute(library), installed + "/libsconce.so");
    variables_ = {{"LD_LIBRARY_PATH", installed}};
    model_ = write_model(scratch_, "model.pt", "def forward(self, x: Tensor): return (x * 2 + 1).tanh()\n");
  }
  ProgramResult run(const std::vector<std::string>& arguments) const {
    return run_program(sconce_binary(), arguments, variables_);
  }

  const ScratchFolder scratch_;
  std::map<std::string, std::string> variables_;
  std::string model_;
};

TEST_F(MissingKernels, TheVersionSaysWhetherKernelsCanBeCompiled) {
  EXPECT_THAT(sconce({"--version"}).out, HasSubstr("\nkernels: available\n"));
  const ProgramResult version = run({"--version"});
  EXPECT_THAT(version.out, AllOf(StartsWith("sconce 0."), HasSubstr("\nkernels: unavailable: libsconce_llvm.so: "),
                                 HasSubstr(kReason), HasSubstr(kRemedy)));
  EXPECT_EQ(version.err, "");
  EXPECT_EQ(version.exit_code, 0);
}

TEST_F(MissingKernels, CommandsThatRunAModelWarnOnce) {
  const std::vector<std::string> input = {"--input", "float32[8,16]"};
  std::vector<std::vector<std::string>> commands = {{"run", model_, "--no-grad", "--repeat", "5"},
                                                    {"bench", model_, "--against", "eager", "--seconds", "0.05"}};
  for (std::vector<std::string>& command : commands) {
    command.insert(command.end(), input.begin(), input.end());
    const ProgramResult result = run(command);
    SCOPED_TRACE(result.err);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, AllOf(StartsWith(kWarning), HasSubstr(kReason), HasSubstr(kRemedy)));
    EXPECT_EQ(count(result.err, "libsconce.so"), 1);
    EXPECT_THAT(sconce(command).err, Not(HasSubstr("warning")));
  }
}

TEST_F(MissingKernels, AnExplanationRefusesThemAndNamesTheCause) {
  const ProgramResult result = run({"explain", model_, "--input", "float32[8,16]", "--no-grad", "--json"});
  SCOPED_TRACE(result.out + result.err);
  const auto json = json_of(result);
  ASSERT_EQ(json["refusals"].size(), 1);
  EXPECT_EQ(json["refusals"][0]["what"], "compiled kernels");
  EXPECT_THAT(json["refusals"][0]["reason"].get<std::string>(), AllOf(HasSubstr(kReason), HasSubstr(kRemedy)));
  for (const auto& plan : json["plans"]) {
    EXPECT_EQ(plan["groups"], 0);
    EXPECT_THAT(plan["not_prepared"].dump(), Not(HasSubstr("could not be compiled")));
  }
}

// `dump` prints no warning of its own.
TEST_F(MissingKernels, TheLibraryWarnsOnce) {
  const ProgramResult result = run({"dump", model_, "--input", "float32[8,16]", "--format", "plan"});
  SCOPED_TRACE(result.err);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(count(result.err, "no kernels are compiled, and models run without them"), 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr(kReason), HasSubstr(kRemedy)));
}

TEST_F(MissingKernels, ADumpOfKernelsSaysWhyThereIsNone) {
  const ProgramResult result = run({"dump", model_, "--input", "float32[8,16]", "--format", "kernel"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--format kernel: no kernel was made; libsconce_llvm.so: "), HasSubstr(kReason)));
}

}  // namespace
}  // namespace sconce::tests
