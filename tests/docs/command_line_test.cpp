// docs/command_line.md is what the program writes about its own options.
#include "tests/docs/pages.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
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

// Returns the folder of the binary `sconce`: the one of the build that this test belongs to, unless the environment has
// another.
std::string folder_of_programs() {
  const char* given = std::getenv("SCONCE_BIN_DIR");
  return given != nullptr ? given : std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin";
}

TEST(CommandLinePage, IsWhatTheProgramWrites) {
  const std::string written = output_of("'" + folder_of_programs() + "/sconce' --help-markdown");
  expect_page("docs/command_line.md", written);
}

}  // namespace
}  // namespace sconce::testing
