// docs/command_line.md is what the program writes about its own options.
#include "tests/docs/pages.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace sconce::testing {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr) << command;
  std::array<char, 4096> buffer{};
  while (const size_t count = pipe == nullptr ? 0 : fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), count);
  }
  EXPECT_EQ(pipe == nullptr ? 0 : pclose(pipe), 0) << command;
  return text;
}

TEST(CommandLinePage, IsWhatTheProgramWrites) {
  const char* programs = std::getenv("SCONCE_BIN_DIR");
  ASSERT_NE(programs, nullptr) << "set SCONCE_BIN_DIR to the folder of the binary `sconce`";
  const std::string written = output_of("'" + std::string(programs) + "/sconce' --help-markdown");
  expect_page("docs/command_line.md", written);
}

}  // namespace
}  // namespace sconce::testing
