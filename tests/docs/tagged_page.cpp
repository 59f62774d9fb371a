#include "tests/docs/tagged_page.h"

#include "tests/support/graphs.h"

#include <cstdlib>
#include <fstream>
#include <utility>

namespace sconce::testing {

TaggedPage::TaggedPage(std::string path) : path_(std::move(path)), text_(read_text(tests_dir() + "/../" + path_)) {}

TaggedPage::Range TaggedPage::find(const std::string& tag) const {
  const std::string opening = "```" + tag + "\n";
  const size_t opened = text_.find(opening);
  EXPECT_NE(opened, std::string::npos) << path_ << " has no block " << tag;
  const size_t begin = opened + opening.size();
  return {begin, text_.find("```", begin)};
}

std::string TaggedPage::block(const std::string& tag) const {
  const auto [begin, end] = find(tag);
  return text_.substr(begin, end - begin);
}

void TaggedPage::expect_blocks(const std::map<std::string, std::string>& texts) {
  const bool updates = std::getenv("SCONCE_UPDATE_EXPECTATIONS") != nullptr;
  for (const auto& [tag, text] : texts) {
    const auto [begin, end] = find(tag);
    if (updates) {
      text_.replace(begin, end - begin, text);
    } else {
      EXPECT_EQ(text_.substr(begin, end - begin), text) << "in block " << tag << " of " << path_;
    }
  }
  if (updates) {
    std::ofstream(tests_dir() + "/../" + path_) << text_;
  }
}

}  // namespace sconce::testing
