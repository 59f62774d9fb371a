#include "tests/docs/pages.h"

#include "tests/support/graphs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace sconce::testing {

std::filesystem::path repository() { return std::filesystem::path(tests_dir()) / ".."; }

std::string read_page(const std::filesystem::path& name) { return read_text(repository() / name); }

void expect_page(const std::filesystem::path& name, const std::string& text) {
  if (std::getenv("SCONCE_UPDATE_EXPECTATIONS") != nullptr) {
    std::ofstream(repository() / name) << text;
  }
  EXPECT_EQ(read_page(name), text) << name << ": SCONCE_UPDATE_EXPECTATIONS=1 rewrites the page";
}

void expect_part(const std::filesystem::path& name, const std::string& opening, const std::string& closing,
                 const std::string& text) {
  const std::string page = read_page(name);
  const size_t opened = page.find(opening);
  ASSERT_NE(opened, std::string::npos) << name << " has no " << opening;
  const size_t begin = opened + opening.size();
  const size_t end = page.find(closing, begin);
  ASSERT_NE(end, std::string::npos) << name << " does not end " << opening;
  if (std::getenv("SCONCE_UPDATE_EXPECTATIONS") != nullptr) {
    expect_page(name, page.substr(0, begin) + text + page.substr(end));
  } else {
    EXPECT_EQ(page.substr(begin, end - begin), text) << name << ", after " << opening;
  }
}

}  // namespace sconce::testing
