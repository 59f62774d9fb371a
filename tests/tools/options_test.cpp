// Options that all commands have, and combinations of options that make no sense.
#include "tests/tools/sconce_program.h"

#include "tools/sconce/commands/dump_variable.h"
#include "tools/sconce/commands/options_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;

TEST(CommonOptions, EveryCommandTakesThemAndRefusesWhatIsNotThereYet) {
  const ScratchFolder scratch;
  const std::string graph = scratch.write("g.ir", "graph(%x : Tensor):\n  return (%x)\n");
  const std::string model = model_file("mlp.pt");
  const std::vector<std::vector<std::string>> commands = {
      {"run", model, "--inputs", model_file("inputs/mlp.inputs.pt")},
      {"check", model, model_file("mlp.cases.pt")},
      {"bench", model},
      {"dump", model},
      {"explain", model, "--inputs", model_file("inputs/mlp.inputs.pt")},
      {"opt", graph, "--passes", "eliminate_dead_nodes"},
      {"passes"},
      {"replay", graph},
  };
  for (std::vector<std::string> command : commands) {
    const auto with = [&](const std::string& option, const std::string& value) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {option, value});
      return arguments;
    };
    expect_usage_error(with("--pass-plugin", "p.so"), "--pass-plugin: p.so: no such file");
    expect_usage_error(with("--trace-out", "nowhere/t.json"), "nowhere/t.json: cannot be written");
    expect_usage_error(with("--options", "nowhere.json"), "nowhere.json: no such file");
    expect_usage_error(with("--ops-library", "nowhere.so"), "nowhere.so: no such file");
  }
}

TEST(CommonOptions, OptReadsGraphsWithOperatorsOfALibrary) {
  const ScratchFolder scratch;
  const std::string graph = scratch.write("g.ir",
                                          "graph(%x : Tensor):\n"
                                          "  %unused : Tensor = sconce_test::twice(%x)\n"
                                          "  %y : Tensor = sconce_test::twice(%x)\n"
                                          "  return (%y)\n");
  const std::vector<std::string> opt = {"opt", graph, "--passes", "eliminate_dead_nodes", "--verify-each"};
  std::vector<std::string> with_library = opt;
  with_library.insert(with_library.end(), {"--ops-library", plugin_file("custom_operators")});
  const ProgramResult result = sconce(with_library);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("%y : Tensor = sconce_test::twice(%x)"));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("unused"))) << "its library says that it computes alone";
  const ProgramResult run = sconce({"run", "--ops-library", plugin_file("custom_operators"), model_file("mlp.pt"),
                                    "--inputs", model_file("mlp.cases.pt")});
  EXPECT_EQ(run.exit_code, 0) << "the option takes no more than its one library\n" << run.err;
}

// `preserve` adds to what the key `preserved` sets; `passes` is an object, of which two keys set a part each.
TEST(OptionsFile, HasAKeyForEachSetterOfOptions) {
  std::set<std::string> expected = {"preserved", "reproducer_folder", "pass_plugins", "disabled_passes"};
  const std::string header = read_file(repository() / "include/sconce/options.h");
  const std::regex setter(R"(\n  Options& (\w+)\()");
  for (std::sregex_iterator each(header.begin(), header.end(), setter), end; each != end; ++each) {
    if ((*each)[1] != "preserve" && (*each)[1] != "set") {
      expected.insert((*each)[1]);
    }
  }
  EXPECT_GT(expected.size(), 12U);
  const std::vector<std::string> keys = sconce::option_keys();
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()), expected);
  const std::string page = read_file(repository() / "docs/performance.md");
  for (const std::string& key : keys) {
    EXPECT_THAT(page, HasSubstr("`" + key + "`"));
  }
}

TEST(DumpOptions, PlansHaveNoStage) {
  expect_usage_error({"dump", model_file("mlp.pt"), "--format", "plan", "--stage", "load"}, "leave --stage out");
  EXPECT_EQ(sconce({"dump", model_file("mlp.pt"), "--format", "plan"}).exit_code, 0);
}

TEST(InputOptions, SeedZeroIsASeed) {
  // The CASES file says 0 for all but models with random numbers; rng's says otherwise.
  const std::vector<std::string> run = {"run", model_file("rng.pt"), "--inputs", model_file("rng.cases.pt")};
  const auto output = [&](const std::string& seed) {
    std::vector<std::string> arguments = run;
    if (!seed.empty()) {
      arguments.insert(arguments.end(), {"--seed", seed});
    }
    return sconce(arguments).out;
  };
  EXPECT_NE(output("0"), output(""));
  EXPECT_NE(output("0"), output("1"));
}

TEST(MethodOption, DoesNotGoWithAnOperatorSuite) {
  const std::string suite = model_file("operators.cases.pt");
  expect_usage_error({"check", suite, suite, "--method", "add"}, "each case of which names its own method");
  EXPECT_EQ(sconce({"run", suite, "--inputs", suite, "--method", "add"}).exit_code, 0) << "its first case";
  expect_usage_error({"run", suite, "--inputs", suite, "--method", "adds"}, "none of the cases in");
}

TEST(DumpVariable, TyposAreNamedWithWhatWasMeant) {
  EXPECT_THAT(cli::find_dump_typos("load,after,plan,all,before:eliminate_dead_nodes,plan:forward", {}),
              ::testing::IsEmpty());
  EXPECT_THAT(cli::find_dump_typos("", {}), ::testing::IsEmpty());
  EXPECT_THAT(cli::find_dump_typos("load,plna", {}),
              ::testing::ElementsAre("SCONCE_DUMP: no choice 'plna'; did you mean 'plan'?"));
  EXPECT_THAT(
      cli::find_dump_typos("after:eliminate_dead_node", {}),
      ::testing::ElementsAre("SCONCE_DUMP: after: no pass 'eliminate_dead_node'; did you mean 'eliminate_dead_nodes'?"));
  PassPipeline passes;
  passes.after(Stage::kOptimize, "mine", [](Graph&) { return false; });
  EXPECT_THAT(cli::find_dump_typos("before:mine,after:freeze", passes), ::testing::IsEmpty());
  const ProgramResult result = sconce({"passes"}, {{"SCONCE_DUMP", "plna"}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "sconce: warning: SCONCE_DUMP: no choice 'plna'; did you mean 'plan'?\n");
}

}  // namespace
}  // namespace sconce::tests
