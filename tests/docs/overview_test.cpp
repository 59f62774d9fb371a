// docs/OVERVIEW.md carries one example through all stages; its blocks are what the code really gives.
#include "tests/docs/tagged_page.h"

#include "executor/compile.h"
#include "ir/text/print.h"
#include "load/function_table.h"
#include "lower/lower.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <map>
#include <regex>
#include <string>
#include <string_view>

namespace sconce {
namespace {

std::map<std::string, std::string> stages_of(const std::string& source) {
  torch::jit::CompilationUnit unit;
  unit.define(std::nullopt, source, torch::jit::nativeResolver(), nullptr);
  const PrintOptions without_locations{.locations = false};
  std::map<std::string, std::string> stages;
  FunctionTable functions;
  const auto loaded = functions.graph_of(unit.get_function("lstm_cell"));
  EXPECT_TRUE(loaded);
  CompileSettings settings;
  settings.functions = &functions;
  settings.optimize = true;
  std::unique_ptr<Graph> optimized;
  EXPECT_TRUE(show_stages((*loaded)->clone(), settings, [&](std::string_view stage, const Graph& graph) {
    stages["ir " + std::string(stage)] = print(graph, without_locations);
    optimized = graph.clone();
    return true;
  }));
  const auto plan = lower(std::move(optimized));
  EXPECT_TRUE(plan);
  stages["plan"] = std::regex_replace((*plan)->text(), std::regex("  #[^\n]*"), "");
  return stages;
}

TEST(Overview, ShowsWhatTheCodeGivesAtEveryStage) {
  testing::TaggedPage page("docs/OVERVIEW.md");
  page.expect_blocks(stages_of(page.block("python")));
}

}  // namespace
}  // namespace sconce
