#include "tests/tools/sconce_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>

namespace sconce::tests {

ProgramResult sconce(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& variables) {
  return run_program(sconce_binary(), arguments, variables);
}

void expect_usage_error(const std::vector<std::string>& arguments, const std::string& expected) {
  const ProgramResult result = sconce(arguments);
  SCOPED_TRACE(testing::PrintToString(arguments) + "\n" + result.err);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, testing::StartsWith("sconce: error: "));
  EXPECT_THAT(result.err, testing::HasSubstr(expected));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
  EXPECT_EQ(result.out, "");
}

void expect_refusal(const std::vector<std::string>& arguments, const std::string& expected) {
  const ProgramResult result = sconce(arguments);
  SCOPED_TRACE(testing::PrintToString(arguments) + "\n" + result.err);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, testing::StartsWith("sconce: refused: "));
  EXPECT_THAT(result.err, testing::HasSubstr(expected));
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
