// What sconce dump --format html writes: a graph after each stage on one page, changes marked.
#pragma once

#include <string>
#include <vector>

namespace sconce::cli {

struct StageText {
  std::string stage;
  std::string help;  // what the stage did, one line
  size_t nodes;
  std::string text;  // IR
};

// For each stage but the first two columns, the graph before and after: in the first the lines that are gone are marked, in
// the second those that are new. Numbers of values without a name are not compared, nor are source locations.
std::string to_page(const std::string& title, const std::vector<StageText>& stages);

}  // namespace sconce::cli
