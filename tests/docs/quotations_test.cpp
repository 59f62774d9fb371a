// Blocks of code in docs/*.md that name a file, "```cpp src/analysis/effects.h", are quotations of it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace sconce {
namespace {

std::filesystem::path repository() {
  const char* tests = std::getenv("SCONCE_TESTS_DIR");
  return std::filesystem::path(tests != nullptr ? tests : "tests") / "..";
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Quotations, AreInTheFilesThatTheyName) {
  const std::regex block("\n```[a-z]+ ([a-z_/]+\\.[a-z]+)\n([^`]*)```\n");
  size_t quotations = 0;
  for (const auto& entry : std::filesystem::directory_iterator(repository() / "docs")) {
    const std::string page = entry.path().extension() == ".md" ? read(entry.path()) : "";
    for (auto found = std::sregex_iterator(page.begin(), page.end(), block); found != std::sregex_iterator(); ++found) {
      const std::string file = (*found)[1];
      EXPECT_NE(read(repository() / file).find((*found)[2]), std::string::npos)
          << entry.path().filename() << " quotes what " << file << " does not say:\n"
          << (*found)[2];
      ++quotations;
    }
  }
  EXPECT_GT(quotations, 5U);
}

}  // namespace
}  // namespace sconce
