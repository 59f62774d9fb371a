#include "tests/tools/sconce_program.h"

#include "tests/tools/command_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <memory>

namespace sconce::tests {
namespace {

// Set up before the first test, which may start threads.
class ServerOfTheProcess final : public ::testing::Environment {
 public:
  static CommandServer& get() { return *server; }
  void SetUp() override { server = std::make_unique<CommandServer>(); }
  void TearDown() override { server.reset(); }

 private:
  static inline std::unique_ptr<CommandServer> server;
};
const ::testing::Environment* const registered = ::testing::AddGlobalTestEnvironment(new ServerOfTheProcess);

}  // namespace

ProgramResult sconce(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& variables) {
  return ServerOfTheProcess::get().run(arguments, variables);
}

TEST(SconceProgram, DoesWhatTheTestsRunInItsPlace) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--version"}, {"run", "/nowhere.pt"}, {"passes", "--json"}}) {
    const ProgramResult program = run_program(sconce_binary(), arguments);
    const ProgramResult in_place = sconce(arguments);
    EXPECT_EQ(program.exit_code, in_place.exit_code);
    EXPECT_EQ(program.out, in_place.out);
    EXPECT_EQ(program.err, in_place.err);
  }
}

void expect_usage_error(const std::vector<std::string>& arguments, const std::string& expected) {
  const ProgramResult result = sconce(arguments);
  SCOPED_TRACE(::testing::PrintToString(arguments) + "\n" + result.err);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, ::testing::StartsWith("sconce: error: "));
  EXPECT_THAT(result.err, ::testing::HasSubstr(expected));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
  EXPECT_EQ(result.out, "");
}

void expect_refusal(const std::vector<std::string>& arguments, const std::string& expected) {
  const ProgramResult result = sconce(arguments);
  SCOPED_TRACE(::testing::PrintToString(arguments) + "\n" + result.err);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, ::testing::StartsWith("sconce: refused: "));
  EXPECT_THAT(result.err, ::testing::HasSubstr(expected));
}

nlohmann::json json_of(const ProgramResult& result) { return nlohmann::json::parse(result.out); }

std::string write_model(const ScratchFolder& folder, const std::string& name, const std::string& methods) {
  torch::jit::Module module("Model");
  module.define(methods);
  const std::string path = folder.path() + "/" + name;
  module.save(path);
  return path;
}

}  // namespace sconce::tests
