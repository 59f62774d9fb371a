#include "tests/docs/tagged_page.h"

#include "tests/docs/pages.h"

#include <gtest/gtest.h>

#include <utility>

namespace sconce::testing {
namespace {

std::string opening_of(const std::string& tag) { return "```" + tag + "\n"; }

}  // namespace

TaggedPage::TaggedPage(std::string path) : path_(std::move(path)) {}

std::string TaggedPage::block(const std::string& tag) const {
  const std::string page = read_page(path_);
  const size_t opened = page.find(opening_of(tag));
  EXPECT_NE(opened, std::string::npos) << path_ << " has no block " << tag;
  const size_t begin = opened + opening_of(tag).size();
  return page.substr(begin, page.find("```", begin) - begin);
}

void TaggedPage::expect_blocks(const std::map<std::string, std::string>& texts) const {
  for (const auto& [tag, text] : texts) {
    expect_part(path_, opening_of(tag), "```", text);
  }
}

}  // namespace sconce::testing
