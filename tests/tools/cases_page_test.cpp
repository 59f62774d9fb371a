// docs/cases.md: its Python writes a file that check reads.
#include "tests/tools/sconce_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace sconce::tests {
namespace {

std::string python_of(const std::string& page) {
  const std::string begin = "```python\n";
  const size_t start = page.find(begin);
  const size_t end = page.find("\n```\n", start);
  EXPECT_TRUE(start != std::string::npos && end != std::string::npos) << "the page has no Python";
  return start == std::string::npos ? "" : page.substr(start + begin.size(), end - start - begin.size()) + "\n";
}

TEST(CasesPage, ItsPythonWritesWhatCheckReads) {
  const std::filesystem::path python = repository() / "build/venv/bin/python";
  if (!std::filesystem::exists(python)) {
    GTEST_SKIP() << python << " is missing: no Python with torch (make setup installs it)";
  }
  const ScratchFolder scratch;
  const std::string script = scratch.write("write.py", python_of(read_file((repository() / "docs/cases.md").string())));
  const ProgramResult written =
      run_program("/bin/sh", {"-c", "cd '" + scratch.path() + "' && '" + python.string() + "' '" + script + "'"}, {});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const ProgramResult checked = sconce({"check", scratch.path() + "/model.pt", scratch.path() + "/model.cases.pt"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.out, ::testing::StartsWith("2 of 2 cases agree"));
}

TEST(CasesPage, IsWhereTheHelpSays) {
  EXPECT_THAT(sconce({"check", "--help"}).out, ::testing::HasSubstr("docs/cases.md"));
  EXPECT_TRUE(std::filesystem::exists(repository() / "docs/cases.md"));
}

}  // namespace
}  // namespace sconce::tests
