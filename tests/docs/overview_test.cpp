// docs/OVERVIEW.md carries one example through all stages; its blocks are what the code really gives.
#include "tests/docs/listings.h"
#include "tests/docs/tagged_page.h"

#include "executor/compile.h"
#include "fusion/group/form_groups.h"
#include "fusion/kernels_on_device.h"
#include "ir/text/print.h"
#include "load/function_table.h"
#include "lower/lower.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <map>
#include <memory>
#include <regex>
#include <string>
#include <string_view>

namespace sconce {
namespace {

struct Stages {
  std::map<std::string, std::string> listings;  // by tag: the graph that is loaded, then what each stage changes of it
  std::unique_ptr<Graph> optimized;
};

Stages stages_of(const std::string& source) {
  torch::jit::CompilationUnit unit;
  unit.define(std::nullopt, source, torch::jit::nativeResolver(), nullptr);
  const PrintOptions without_locations{.locations = false};
  FunctionTable functions;
  const auto loaded = functions.graph_of(unit.get_function("lstm_cell"));
  EXPECT_TRUE(loaded);
  CompileSettings settings;
  settings.functions = &functions;
  settings.optimize = true;
  Stages stages;
  std::string before;
  EXPECT_TRUE(show_stages((*loaded)->clone(), settings, [&](std::string_view stage, const Graph& graph) {
    const std::string text = print(graph, without_locations);
    stages.listings[(before.empty() ? "ir " : "diff ") + std::string(stage)] =
        before.empty() ? text : testing::difference(before, text);
    before = text;
    stages.optimized = graph.clone();
    return true;
  }));
  return stages;
}

std::string listing_of(const Plan& plan) {
  const std::string without_locations = std::regex_replace(plan.text(), std::regex("  #[^\n]*"), "");
  return testing::shortened(std::regex_replace(without_locations, std::regex("release \\$[^\n]*"), "release …"));
}

TEST(Overview, ShowsWhatTheCodeGivesAtEveryStage) {
  testing::TaggedPage page("docs/OVERVIEW.md");
  Stages stages = stages_of(page.block("python"));
  const auto plan = lower(std::move(stages.optimized));
  ASSERT_TRUE(plan);
  stages.listings["plan"] = listing_of(**plan);
  page.expect_blocks(stages.listings);
}

TEST(Overview, ShowsThePlanWithKernels) {
  const auto kernels = kernels_on(c10::kCPU, /*is_blocking=*/true);
  if (!kernels) {
    GTEST_SKIP() << kernels.refusal().reason;
  }
  testing::TaggedPage page("docs/OVERVIEW.md");
  Stages stages = stages_of(page.block("python"));
  ASSERT_TRUE(form_groups(*stages.optimized));
  const auto plan = lower(std::move(stages.optimized), nullptr, nullptr, {.is_prepared = true, .groups = *kernels});
  ASSERT_TRUE(plan);
  page.expect_blocks({{"plan kernels", listing_of(**plan)}});
}

}  // namespace
}  // namespace sconce
