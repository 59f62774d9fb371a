// --trace-out of every command, and `sconce bench --profile`.
#include "tests/support/trace_slices.h"
#include "tests/tools/sconce_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

namespace sconce::tests {
namespace {

using sconce::testing::named;
using sconce::testing::Slice;
using sconce::testing::slices_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> call_of(const std::string& command, const std::string& model) {
  return {command, model_file(model + ".pt"), "--inputs", model_file(model + ".cases.pt")};
}

// Runs the command with --trace-out, and parses what it wrote.
std::vector<Slice> traced(std::vector<std::string> arguments) {
  const ScratchFolder scratch;
  const std::string file = scratch.path() + "/trace.json";
  arguments.insert(arguments.end(), {"--trace-out", file});
  const ProgramResult result = sconce(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return slices_of(read_file(file));
}

nlohmann::json plan_of_mlp() {
  std::vector<std::string> explain = call_of("explain", "mlp");
  explain.emplace_back("--json");
  return json_of(sconce(explain))["plans"][0];
}

TEST(TraceOut, HasTheStepsOfThePlan) {
  std::vector<std::string> run = call_of("run", "mlp");
  run.insert(run.end(), {"--no-grad", "--repeat", "3"});
  const auto slices = traced(run);
  const auto plan = plan_of_mlp();
  EXPECT_EQ(named(slices, "forward").size(), 3U);
  std::set<size_t> steps;
  for (const Slice& slice : slices) {
    if (slice.category != "plan") {
      steps.insert(slice.arguments["step"].get<size_t>());
      EXPECT_EQ(slice.arguments["plan"], "forward");
      EXPECT_EQ(slice.around.front(), "forward");
    }
  }
  // Steps may be left out that a compiled kernel replaces, but not the last one.
  EXPECT_EQ(*steps.rbegin(), plan["steps"].get<size_t>() - 1);
  EXPECT_EQ(named(slices, "return").size(), 3U);
  const auto products = named(slices, "aten::linear");
  ASSERT_FALSE(products.empty());
  EXPECT_EQ(products.size() % 3, 0U);
  for (const Slice& product : products) {
    EXPECT_EQ(product.category, "prepared");
    EXPECT_EQ(product.arguments["form"], "prepared");
  }
  EXPECT_THAT(products[0].arguments["node"].get<std::string>(), HasSubstr("aten::linear("));
  EXPECT_THAT(products[0].arguments["source"].get<std::string>(), HasSubstr("linear.py:"));
}

TEST(TraceOut, NestsCalleesInTheirCalls) {
  const auto slices = traced(call_of("run", "interface_dispatch"));
  size_t callees = 0;
  for (const Slice& slice : slices) {
    if (slice.category == "plan" && slice.name != "forward") {
      EXPECT_THAT(slice.around,
                  ElementsAre("forward", "prim::Loop", ::testing::StartsWith("iteration "), "prim::CallMethod"));
      ++callees;
    }
  }
  EXPECT_EQ(callees, named(slices, "prim::CallMethod").size());
  EXPECT_GT(callees, 0U);
}

TEST(TraceOut, ShowsForksOnTheThreadThatRunsThem) {
  const auto slices = traced(call_of("run", "fork_join"));
  std::vector<Slice> tasks;
  std::copy_if(slices.begin(), slices.end(), std::back_inserter(tasks),
               [](const Slice& slice) { return slice.name.starts_with("subgraph (language.py:"); });
  EXPECT_EQ(tasks.size(), named(slices, "prim::fork").size());
  const int64_t caller = named(slices, "forward").at(0).thread;
  for (const Slice& task : tasks) {
    // The caller may run a task while it waits for it.
    EXPECT_EQ(task.around.empty(), task.thread != caller);
    EXPECT_TRUE(task.around.empty() || task.around.back() == "aten::wait") << task.around.back();
  }
}

TEST(TraceOut, IsAnOptionOfEveryCommandThatRunsAModel) {
  EXPECT_FALSE(named(traced({"check", model_file("mlp.pt"), model_file("mlp.cases.pt")}), "forward").empty());
  EXPECT_EQ(named(traced(call_of("explain", "mlp")), "forward").size(), 3U);
  std::vector<std::string> dump = call_of("dump", "mlp");
  dump.insert(dump.end(), {"--format", "plan"});
  EXPECT_EQ(named(traced(dump), "forward").size(), 1U);
  std::vector<std::string> bench = call_of("bench", "mlp");
  bench.insert(bench.end(), {"--against", "eager", "--seconds", "0.02"});
  EXPECT_FALSE(named(traced(bench), "forward").empty());
  const ScratchFolder scratch;
  const std::string file = scratch.path() + "/trace.json";
  const ProgramResult passes = sconce({"passes", "--trace-out", file});
  EXPECT_EQ(passes.exit_code, 0);
  EXPECT_THAT(passes.err, HasSubstr("no plan ran, so the trace is empty"));
  EXPECT_TRUE(slices_of(read_file(file)).empty());
}

TEST(TraceOut, NamesAFileThatCannotBeWritten) {
  const auto to = [](const std::string& command, const std::string& file) {
    std::vector<std::string> arguments = call_of(command, "mlp");
    arguments.insert(arguments.end(), {"--trace-out", file});
    return arguments;
  };
  expect_usage_error(to("run", "nowhere/t.json"), "nowhere/t.json: cannot be written: No such file or directory");
  expect_usage_error(to("bench", "nowhere/t.json"), "nowhere/t.json: cannot be written: No such file or directory");
  const ProgramResult full = sconce(to("run", "/dev/full"));
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_EQ(full.err, "sconce: error: /dev/full: cannot be written: No space left on device\n");
  expect_usage_error({"bench", model_file("mlp.pt"), model_file("mlp.pt"), "--trace-out", "t.json"},
                     "--trace-out: holds the trace of one model");
}

TEST(BenchProfile, HasEveryStepAndEveryLine) {
  std::vector<std::string> bench = call_of("bench", "mlp");
  bench.insert(bench.end(), {"--against", "eager", "--seconds", "0.05", "--profile"});
  const ProgramResult text = sconce(bench);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("profile of "));
  EXPECT_THAT(text.out, ::testing::ContainsRegex("aten::linear +prepared .*linear\\.py:"));
  bench.emplace_back("--json");
  const auto profile = json_of(sconce(bench))["calls"][0]["profile"];
  const auto plan = plan_of_mlp();
  EXPECT_LE(profile["steps"].size(), plan["steps"].get<size_t>());
  EXPECT_EQ(profile["dropped_steps"], 0);
  double before = profile["seconds"].get<double>();
  double sum = 0;
  size_t step_runs = 0;
  size_t products = 0;
  for (const auto& step : profile["steps"]) {
    const bool is_product = step["operator"] == "aten::linear";
    EXPECT_LE(step["runs"], profile["calls"]) << "the model has no loops";
    if (is_product || step["operator"] == "return") {
      EXPECT_EQ(step["runs"], profile["calls"]) << "no compiled kernel replaces the step";
    }
    EXPECT_TRUE(!is_product || step["prepared_runs"] == step["runs"]) << "recording changes nothing";
    products += is_product ? 1 : 0;
    step_runs += step["runs"].get<size_t>();
    EXPECT_LE(step["seconds"].get<double>(), before) << "the slowest first";
    before = step["seconds"].get<double>();
    sum += before;
  }
  EXPECT_GT(products, 0U);
  EXPECT_NEAR(sum, profile["step_seconds"].get<double>(), 1e-9);
  EXPECT_LE(sum, profile["seconds"].get<double>());
  double lines = 0;
  size_t runs = 0;
  for (const auto& line : profile["lines"]) {
    lines += line["seconds"].get<double>();
    runs += line["runs"].get<size_t>();
  }
  EXPECT_NEAR(lines, sum, 1e-9);
  EXPECT_EQ(runs, step_runs);
}

TEST(BenchProfile, ShowsProgress) {
  std::vector<std::string> bench = call_of("bench", "mlp");
  bench.insert(bench.end(), {"--against", "eager", "--seconds", "0.05", "--profile", "--progress"});
  EXPECT_THAT(sconce(bench).err, HasSubstr("recording steps"));
}

}  // namespace
}  // namespace sconce::tests
