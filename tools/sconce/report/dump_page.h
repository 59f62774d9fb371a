// The page that `sconce dump --format html` writes: a graph after each stage, with the changes marked.
#pragma once

#include <string>
#include <vector>

namespace sconce::cli {

// f, the saved values and df of a differentiable subgraph.
struct SubgraphColumns {
  std::string title;
  std::string forward;
  std::string saved;
  std::string backward;
};

struct StageText {
  std::string stage;
  std::string help;  // one line that describes the stage
  size_t nodes;
  std::string text;  // IR
  std::vector<SubgraphColumns> subgraphs = {};
};

// Returns the page. Each stage but the first has two columns, the graph before and after it; removed lines are marked in the
// first, new lines in the second. The differentiable subgraphs of a stage follow it. Numbers of values without a name, and
// source locations, are not compared.
std::string to_page(const std::string& title, const std::vector<StageText>& stages);

}  // namespace sconce::cli
