// docs/OVERVIEW.md carries one example through all stages; its blocks are what the code really gives.
#include "tests/docs/tagged_page.h"

#include "executor/compile.h"
#include "ir/text/print.h"
#include "load/function_table.h"
#include "lower/lower.h"
#include "passes/required/inline_calls.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <regex>

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
  testing::TaggedPage page("docs/OVERVIEW.md");
  page.expect_blocks(stages_of(page.block("python")));
}

}  // namespace
}  // namespace sconce
