#include "report/table.h"
#include "tests/tools/sconce_program.h"
#include "tools/sconce/bench/bench_report.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <fstream>
#include <numeric>
#include <sstream>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

cli::Measurement measured(const std::string& name, double seconds) {
  cli::Measurement row;
  row.name = name;
  row.first_calls = std::vector<double>(10, seconds);
  row.steady = std::vector<double>(100, seconds);
  row.calls_per_second = 1 / seconds;
  row.spread = 0.01;
  return row;
}

cli::BenchedModel benched(const std::string& path, double seconds) {
  cli::BenchedModel model;
  model.path = path;
  model.settings.method = "forward";
  model.table.rows = {measured("sconce", seconds), measured("jit", 2 * seconds), measured("jit-legacy", 3 * seconds)};
  return model;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST(BenchReport, FitsIntoAHundredCharacters) {
  cli::BenchedModel model = benched("m.pt", 123.4e-3);
  model.table.muted = 1234567;
  model.table.rows[0].spread = 0.4;
  model.table.complete = false;
  for (const std::string& line : lines_of(cli::to_text(model))) {
    EXPECT_LE(display_width(line), 100) << line;
  }
}

TEST(BenchReport, SaysWhatStandsInTheWayOfAFairComparison) {
  cli::BenchedModel model = benched("m.pt", 1e-3);
  EXPECT_THAT(cli::to_text(model), Not(HasSubstr("note: ")));
  EXPECT_THAT(cli::to_text(model), HasSubstr("< 256 KiB")) << "nothing measurable";
  model.table.rows[0].memory_bytes = 3 * 1024 * 1024;
  model.table.rows[0].spread = 0.4;
  model.table.muted = 12;
  EXPECT_THAT(cli::to_text(model), HasSubstr("3.00 MiB"));
  EXPECT_THAT(cli::to_text(model), HasSubstr("the machine is noisy: sconce's own median moved by 40 %"));
  EXPECT_THAT(cli::to_text(model), HasSubstr("printed or warned 12 times"));
}

TEST(BenchReport, SaysHowSureARatioIs) {
  cli::BenchedModel model = benched("m.pt", 1e-3);
  std::vector<cli::Measurement>& rows = model.table.rows;
  for (int round = 0; round < 20; ++round) {
    const double drift = 1 + 0.05 * round;  // meets all executors
    rows[0].rounds.push_back(1e-3 * drift);
    rows[1].rounds.push_back(2e-3 * drift * (round % 2 == 0 ? 0.99 : 1.02));
    rows[2].rounds.push_back(1e-3 * drift * (round % 2 == 0 ? 0.9 : 1.1));
  }
  rows[2].steady.resize(3);
  const auto interval = cli::ratios_of(rows[1], rows[0]).steady_interval;
  ASSERT_TRUE(interval);
  EXPECT_NEAR(interval->low, 1.98, 1e-9);
  EXPECT_NEAR(interval->high, 2.04, 1e-9);
  const std::string text = cli::to_text(model);
  EXPECT_THAT(text, HasSubstr("note: neither faster nor slower than sconce, within the interval: jit-legacy\n"));
  EXPECT_THAT(text, HasSubstr("note: few calls were measured (jit-legacy 3); measure longer with --seconds\n"));
  EXPECT_NEAR(cli::to_json({model}, {})["calls"][0]["executors"][1]["ratio_steady_interval"][1].get<double>(), 2.04, 1e-9);
}

TEST(Confidence, IsTheSignTestsInterval) {
  EXPECT_FALSE(cli::interval_of_median({1, 2, 3, 4, 5})) << "even all of them hold the median with only 93.75 %";
  std::vector<double> ratios = {3, 1, 2, 6, 5, 4};
  EXPECT_EQ(cli::interval_of_median(ratios)->low, 1);
  EXPECT_EQ(cli::interval_of_median(ratios)->high, 6);
  ratios.resize(20);
  std::iota(ratios.begin(), ratios.end(), 1);
  EXPECT_EQ(cli::interval_of_median(ratios)->low, 6) << "of a table of the test";
  EXPECT_EQ(cli::interval_of_median(ratios)->high, 15);
}

class BenchBaseline : public ::testing::Test {
 protected:
  std::string write(const std::string& text) const {
    const std::string path = scratch_.path() + "/old.json";
    std::ofstream(path) << text;
    return path;
  }
  std::vector<cli::BaselineRow> compare(double jit_then, double jit_now) const {
    const auto model_with = [](double jit) {
      cli::BenchedModel model = benched("folder/m.pt", 1e-3);
      for (int round = 0; round < 20; ++round) {
        model.table.rows[0].rounds.push_back(1e-3);
        model.table.rows[1].rounds.push_back(jit * 1e-3 * (round % 2 == 0 ? 0.98 : 1.02));
      }
      model.table.rows[1].steady = std::vector<double>(10, jit * 1e-3);
      return model;
    };
    cli::BenchedModel old = model_with(jit_then);
    old.path = "m.pt";
    old.table.rows[2].not_available = "freezing needs eval mode";
    return cli::Baseline(write(sconce::json_text(cli::to_json({old}, {})))).compare(model_with(jit_now));
  }

  const ScratchFolder scratch_;
};

TEST_F(BenchBaseline, IsSlowerOrFasterBeyondBothIntervals) {
  ASSERT_EQ(compare(2, 2).size(), 1U) << "jit-legacy had no ratio";
  EXPECT_EQ(compare(2, 2)[0].verdict, cli::Verdict::kSame);
  EXPECT_EQ(compare(2, 1.95)[0].verdict, cli::Verdict::kSame) << "the intervals overlap";
  EXPECT_EQ(compare(2, 1.8)[0].verdict, cli::Verdict::kSlower);
  EXPECT_EQ(compare(2, 2.2)[0].verdict, cli::Verdict::kFaster);
  EXPECT_TRUE(cli::is_slower(compare(2, 1.8)));
  EXPECT_THAT(cli::to_text(compare(2, 1.8)), HasSubstr("slower"));
}

TEST_F(BenchBaseline, HasNothingOfOtherModels) {
  cli::BenchedModel other = benched("other.pt", 1e-3);
  const std::string path = write(sconce::json_text(cli::to_json({benched("m.pt", 1e-3)}, {})));
  EXPECT_TRUE(cli::Baseline(path).compare(other).empty());
  EXPECT_THAT(cli::to_text(cli::Baseline(path).compare(other)), HasSubstr("note: the baseline has no such model"));
}

TEST_F(BenchBaseline, ComparesTheSameNumberOfCallingThreads) {
  std::vector<cli::BenchedModel> old = {benched("m.pt", 1e-3), benched("m.pt", 1e-3)};
  old[1].settings.threads = 2;
  old[1].table.rows[1].steady = std::vector<double>(10, 8e-3);
  const cli::Baseline baseline(write(sconce::json_text(cli::to_json(old, {}))));
  EXPECT_NEAR(baseline.compare(old[0])[0].then, 2, 1e-9);
  EXPECT_NEAR(baseline.compare(old[1])[0].then, 8, 1e-9);
}

TEST_F(BenchBaseline, RefusesOtherFiles) {
  const std::string mlp = model_file("mlp.pt");
  const auto expect_refused = [&](const std::string& text, const std::string& why) {
    const std::string path = write(text);
    expect_usage_error({"bench", mlp, "--baseline", path}, path + ": " + why);
  };
  expect_refused("{", "not valid JSON");
  expect_refused("[]", "not an object with `calls`");
  expect_refused(R"({"calls": [{"model": "m.pt"}]})", "a call without `model`, `method` and `executors`");
  expect_refused(R"({"calls": [{"model": "m.pt", "method": "forward", "executors": [3]}]})", "an executor has no name");
  expect_usage_error({"bench", mlp, "--baseline", "nowhere.json"}, "nowhere.json: no such file");
}

TEST_F(BenchBaseline, SetsTheExitCode) {
  const std::string mlp = model_file("mlp.pt");
  const std::vector<std::string> quick = {"bench", mlp, "--against", "eager", "--seconds", "0.3", "--json"};
  const auto old = json_of(sconce(quick));
  EXPECT_THAT(old["machine"]["libtorch"].get<std::string>(), HasSubstr("2."));
  EXPECT_THAT(old["calls"][0]["inputs"].get<std::string>(), HasSubstr("float32["));
  for (const double factor : {100.0, 0.01}) {
    auto changed = old;
    auto& executor = changed["calls"][0]["executors"][1];
    executor["ratio_steady"] = executor["ratio_steady"].get<double>() * factor;
    for (auto& end : executor["ratio_steady_interval"]) {
      end = end.get<double>() * factor;
    }
    std::vector<std::string> arguments = quick;
    arguments.insert(arguments.end(), {"--baseline", write(changed.dump())});
    const ProgramResult result = sconce(arguments);
    EXPECT_EQ(result.exit_code, factor > 1 ? 1 : 0) << result.err;
    EXPECT_EQ(json_of(result)["calls"][0]["baseline"][0]["verdict"], factor > 1 ? "slower" : "faster");
  }
}

TEST(BenchReport, JsonHasGeometricMeansAndNullForWhatThereIsNot) {
  std::vector<cli::BenchedModel> models = {benched("a.pt", 1), benched("b.pt", 1)};
  models[1].table.rows[1].steady = std::vector<double>(10, 8.0);
  models[1].table.rows[2].not_available = "freezing needs eval mode";
  models[0].table.rows[0].spread = NAN;
  const sconce::Json json = cli::to_json(models, {});
  ASSERT_EQ(json["calls"].size(), 2);
  EXPECT_EQ(json["calls"][0]["model"], "a.pt");
  EXPECT_TRUE(json["calls"][0]["executors"][0]["memory_bytes"].is_null());
  EXPECT_TRUE(json["calls"][0]["executors"][0]["spread"].is_null());
  EXPECT_NEAR(json["geometric_means"][0]["ratio_steady"].get<double>(), 4.0, 1e-9) << "of 2 and 8";
  EXPECT_TRUE(json["geometric_means"][1]["ratio_steady"].is_null()) << "it did not run them all";
  EXPECT_THAT(json.dump(), Not(HasSubstr("nan")));
}

// docs/bench_json.md names every key in backquotes. Objects of the user's own are not the program's keys.
void expect_documented(const sconce::Json& json, const std::string& page) {
  for (const auto& [key, value] : json.items()) {
    EXPECT_TRUE(json.is_array() || page.find("`" + key + "`") != std::string::npos) << key;
    if (value.is_structured() && key != "options") {
      expect_documented(value, page);
    }
  }
}

TEST(BenchJson, IsDocumentedKeyByKey) {
  const ScratchFolder scratch;
  const std::string page = read_file(repository() / "docs/bench_json.md");
  std::vector<std::string> arguments = {"bench",
                                        model_file("mlp.pt"),
                                        model_file("mlp.pt"),
                                        "--against",
                                        "eager,jit-frozen",
                                        "--seconds",
                                        "0.2",
                                        "--json",
                                        "--intra-op",
                                        "1"};
  const auto first = json_of(sconce(arguments));
  expect_documented(first, page);
  const std::string old = scratch.path() + "/old.json";
  std::ofstream(old) << first.dump();
  arguments.insert(arguments.end(), {"--baseline", old, "--profile", "--train", "sgd"});
  const auto second = json_of(sconce(arguments));
  expect_documented(second, page);
  EXPECT_TRUE(second["calls"][0]["profile"]["steps"][0].contains("flops"));
  EXPECT_GT(second["calls"][0]["profile"]["limit_seconds"].get<double>(), 0);
}

TEST(CommandLineBench, MeasuresInProcessesOfTheirOwn) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "m.pt", "def forward(self, x: Tensor):\n    return x + 1\n");
  const std::vector<std::string> arguments = {
      "bench",       model, "--input", "float32[2..4:x2,3]",         "--against", "eager", "--json", "--seconds", "0.05",
      "--processes", "2",   "--html",  scratch.path() + "/page.html"};
  // The program starts itself: the commands that other tests run are functions of this process.
  const auto program = [](const std::vector<std::string>& command) { return run_program(sconce_binary(), command, {}); };
  const ProgramResult result = program(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto report = json_of(result);
  expect_documented(report, read_file(repository() / "docs/bench_json.md"));
  ASSERT_EQ(report["calls"].size(), 2);
  EXPECT_EQ(report["calls"][1]["inputs"], "float32[4, 3]");
  for (const auto& call : report["calls"]) {
    EXPECT_EQ(call["processes"], 2);
    for (const auto& executor : call["executors"]) {
      EXPECT_EQ(executor["cold_calls_seconds"].size(), 2);
      EXPECT_GT(executor["process_bytes"].get<double>(), 1e7) << "LibTorch alone takes more";
      EXPECT_GT(executor["cold_calls_seconds"][0].get<double>(), executor["median_seconds"].get<double>());
      EXPECT_TRUE(executor["correct"].get<bool>());
    }
  }
  EXPECT_THAT(
      program({"bench", model, "--input", "float32[2]", "--against", "eager", "--seconds", "0.05", "--processes=2"}).out,
      HasSubstr("in a new process  first call"));
  const std::string fails = write_model(scratch, "fails.pt", "def forward(self, x: Tensor):\n    return x @ x\n");
  const ProgramResult failed =
      program({"bench", fails, "--input", "float32[2,3]", "--against", "eager", "--seconds", "0.05", "--processes", "2"});
  EXPECT_EQ(failed.exit_code, 2);
  EXPECT_THAT(failed.err, HasSubstr("mat1 and mat2 shapes cannot be multiplied"));
}

TEST(BenchTable, LeavesOutTheMostDispensableColumnsFirst) {
  Table table({{"name", Align::kLeft}, {"much", Align::kRight, 1}, {"least", Align::kRight, 2}});
  table.add_row({"a", "1", "2"});
  EXPECT_EQ(table.render(17), "name  much  least\n----  ----  -----\na        1      2\n");
  EXPECT_EQ(table.render(16), "name  much\n----  ----\na        1\n");
  EXPECT_EQ(table.render(1), "name\n----\na\n");
}

TEST(CommandLineBench, TakesOneSpecPerOption) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "two.pt", "def forward(self, x: Tensor, n: int):\n    return x + n\n");
  const std::vector<std::string> quick = {"--against", "eager", "--seconds", "0.02", "--json"};
  std::vector<std::string> arguments = {"bench", "--input", "float32[3]", "--input", "2", model, model};
  arguments.insert(arguments.end(), quick.begin(), quick.end());
  const ProgramResult result = sconce(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json_of(result)["calls"].size(), 2);
  expect_usage_error({"bench", model, "--input", "float32[3]", "2"}, "'2' stands where a model is expected, but is a SPEC");
}

TEST(CommandLineBench, ChecksAllModelsAndInputsBeforeMeasuring) {
  // Far beyond the time limit of the tests if anything were measured.
  const std::vector<std::string> long_run = {"--seconds", "3600", "--against", "eager"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), long_run.begin(), long_run.end());
    return arguments;
  };
  expect_usage_error(with({"bench", model_file("mlp.pt"), "nowhere.pt"}), "nowhere.pt: no such file");
  expect_usage_error(with({"bench", model_file("mlp.pt"), model_file("lstm.pt"), "--inputs",
                           model_file("inputs/mlp.inputs.pt"), "--inputs", "nowhere.pt"}),
                     "nowhere.pt: no such file");
}

TEST(CommandLineBench, TrainsOnlyWhatHasGradients) {
  const std::string mlp = model_file("mlp.pt");
  expect_usage_error({"bench", mlp, "--train", "sgd", "--frozen"},
                     "--train: the parameters of a frozen model take no gradients; leave out one of --train and --frozen");
  const ScratchFolder scratch;
  const std::string plain = write_model(scratch, "plain.pt", "def forward(self, x: Tensor):\n    return x.relu()\n");
  expect_usage_error({"bench", plain, "--input", "float32[2]", "--train", "sgd"},
                     "plain.pt: no parameter of the model requires a gradient, so --train has nothing to train; save the "
                     "model with parameters that do, or leave out --train");
  const ProgramResult no_output = sconce({"bench", model_file("decoder_generate.pt"), "--train", "sgd"});
  EXPECT_EQ(no_output.exit_code, 2);
  EXPECT_THAT(no_output.err, HasSubstr("decoder_generate.pt: no output of the model requires a gradient, so no step"));
}

TEST(CommandLineBench, SaysWhyNoTrainingStepRanAsOnePlan) {
  const ScratchFolder scratch;
  for (const bool has_mask : {false, true}) {
    torch::jit::Module module("m");
    module.register_parameter("w", at::ones({3}).set_requires_grad(true), false);
    module.define(std::string("def forward(self, x):\n    return (x * self.w)") +
                  (has_mask ? "[x > 0]\n" : "[x.argsort()]\n"));
    const std::string model = scratch.path() + "/m.pt";
    module.save(model);
    const std::vector<std::string> arguments = {"bench", model,       "--input", "float32[3]", "--train",
                                                "sgd",   "--against", "eager",   "--seconds",  "0.05"};
    const ProgramResult result = sconce(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string remark = "note: sconce-step: no step ran as one plan, forward and backward did: aten::index";
    EXPECT_THAT(result.out,
                has_mask ? ::testing::Matcher<std::string>(HasSubstr(remark)) : Not(HasSubstr("note: sconce-step")));
  }
}

TEST(CommandLineBench, NamesTheModelAndItsSourceLineOfBadArguments) {
  const std::string mlp = model_file("mlp.pt");
  const std::vector<std::string> bad = {"bench", mlp, "--input", "float32[4,17]", "--against", "eager"};
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--train", "adam"}}) {
    std::vector<std::string> arguments = bad;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult text = sconce(arguments);
    EXPECT_EQ(text.exit_code, 2);
    EXPECT_THAT(text.err, ::testing::StartsWith("sconce: error: " + mlp + ": mat1 and mat2 shapes cannot be multiplied"));
    EXPECT_THAT(text.err, HasSubstr("aten::linear("));
    arguments.emplace_back("--json");
    const auto json = json_of(sconce(arguments));
    EXPECT_THAT(json["source"].get<std::string>(), HasSubstr("linear.py:"));
    EXPECT_THAT(json["node"].get<std::string>(), HasSubstr("aten::linear("));
  }
}

TEST(CommandLineBench, MutesWhatTheModelPrintsAndWarns) {
  const ScratchFolder scratch;
  const std::string model =
      write_model(scratch, "loud.pt",
                  "def forward(self, x: Tensor):\n    print('a line')\n    torch.warn('a warning')\n    return x + 1\n");
  const ProgramResult result =
      sconce({"bench", model, "--input", "float32[3]", "--against", "eager", "--seconds", "0.02", "--threads", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out + result.err, Not(HasSubstr("a line")));
  EXPECT_THAT(result.out + result.err, Not(HasSubstr("a warning")));
  EXPECT_THAT(result.out, HasSubstr("note: the model printed or warned "));
}

TEST(CommandLineBench, ShowsWhatIsFinishedWhenInterrupted) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "m.pt", "def forward(self, x: Tensor):\n    return x + 1\n");
  // The first round of steady state is over at the tenth piece of work; there are some ten thousand.
  const std::string err = scratch.path() + "/err";
  const std::string command = "'" + sconce_binary() + "' bench '" + model + "' '" + model +
                              "' --input 'float32[3]' --against eager --seconds 600 --progress 2> '" + err +
                              "' & child=$!; until grep -Eq ' [1-9][0-9]+/' '" + err +
                              "' || ! kill -0 $child; do sleep 0.1; done; kill -INT $child; wait $child";
  // A shell without job control starts background processes with SIGINT ignored; bash -m does not.
  const ProgramResult result = run_program("/bin/bash", {"-m", "-c", command}, {});
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1.00x"));
  EXPECT_THAT(read_file(err), HasSubstr("interrupted: 1 of 2 models were measured"));
}

}  // namespace
}  // namespace sconce::tests
