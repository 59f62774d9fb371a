// A page with code blocks that say what the code gives: "```ir load" begins the block with the tag "ir load".
#pragma once

#include <map>
#include <string>

namespace sconce::testing {

class TaggedPage {
 public:
  // `path`: from the root of the repository.
  explicit TaggedPage(std::string path);

  // Returns the text of the block. A page without it fails the test.
  std::string block(const std::string& tag) const;

  // Compares blocks with the texts by tag. With SCONCE_UPDATE_EXPECTATIONS=1, writes the texts to the page instead.
  void expect_blocks(const std::map<std::string, std::string>& texts) const;

 private:
  std::string path_;
};

}  // namespace sconce::testing
