// Blocks of code in docs/*.md that name a file, "```cpp src/analysis/effects.h", are quotations of it.
#include "tests/docs/pages.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace sconce::testing {
namespace {

TEST(Quotations, AreInTheFilesThatTheyName) {
  const std::regex block("\n```[a-z]+ ([a-z_/]+\\.[a-z]+)\n([^`]*)```\n");
  size_t quotations = 0;
  for (const auto& entry : std::filesystem::directory_iterator(repository() / "docs")) {
    const std::string page = entry.path().extension() == ".md" ? read_page("docs" / entry.path().filename()) : "";
    for (auto found = std::sregex_iterator(page.begin(), page.end(), block); found != std::sregex_iterator(); ++found) {
      const std::string file = (*found)[1];
      EXPECT_NE(read_page(file).find((*found)[2]), std::string::npos)
          << entry.path().filename() << " quotes what " << file << " does not say:\n"
          << (*found)[2];
      ++quotations;
    }
  }
  EXPECT_GT(quotations, 5U);
}

}  // namespace
}  // namespace sconce::testing
