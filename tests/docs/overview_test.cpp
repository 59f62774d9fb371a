// docs/OVERVIEW.md carries one example through all stages; its blocks are what the code really gives.
#include "executor/compile.h"
#include "ir/text/print.h"
#include "load/function_table.h"
#include "lower/lower.h"
#include "passes/required/inline_calls.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

namespace sconce {
namespace {

std::string overview_path() {
  const char* tests = std::getenv("SCONCE_TESTS_DIR");
  return std::string(tests != nullptr ? tests : "tests") + "/../docs/OVERVIEW.md";
}

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The text between "```TAG\n" and "```".
struct BlockOfText {
  size_t begin;
  size_t end;
};
BlockOfText find_block(const std::string& text, const std::string& tag) {
  const std::string opening = "```" + tag + "\n";
  const size_t opened = text.find(opening);
  EXPECT_NE(opened, std::string::npos) << "docs/OVERVIEW.md has no block " << tag;
  const size_t begin = opened + opening.size();
  return {begin, text.find("```", begin)};
}

std::map<std::string, std::string> stages_of(const std::string& source) {
  torch::jit::CompilationUnit unit;
  unit.define(std::nullopt, source, torch::jit::nativeResolver(), nullptr);
  const PrintOptions without_locations{.locations = false};
  std::map<std::string, std::string> stages;
  FunctionTable functions;
  const auto loaded = functions.graph_of(unit.get_function("lstm_cell"));
  EXPECT_TRUE(loaded);
  stages["ir load"] = print(**loaded, without_locations);
  std::unique_ptr<Graph> graph = (*loaded)->clone();
  EXPECT_TRUE(inline_calls(*graph, functions));
  stages["ir inline"] = print(*graph, without_locations);
  PassRunner runner;
  run_stage(Stage::kRequired, graph, runner);
  stages["ir required"] = print(*graph, without_locations);
  run_stage(Stage::kOptimize, graph, runner);
  stages["ir optimize"] = print(*graph, without_locations);
  const auto plan = lower(std::move(graph));
  EXPECT_TRUE(plan);
  stages["plan"] = std::regex_replace((*plan)->text(), std::regex("  #[^\n]*"), "");
  return stages;
}

TEST(Overview, ShowsWhatTheCodeGivesAtEveryStage) {
  std::string text = read(overview_path());
  const BlockOfText source = find_block(text, "python");
  for (const auto& [tag, expected] : stages_of(text.substr(source.begin, source.end - source.begin))) {
    const BlockOfText block = find_block(text, tag);
    if (std::getenv("SCONCE_UPDATE_EXPECTATIONS") != nullptr) {
      text.replace(block.begin, block.end - block.begin, expected);
    } else {
      EXPECT_EQ(text.substr(block.begin, block.end - block.begin), expected) << "in block " << tag;
    }
  }
  if (std::getenv("SCONCE_UPDATE_EXPECTATIONS") != nullptr) {
    std::ofstream(overview_path()) << text;
  }
}

}  // namespace
}  // namespace sconce
