// Plug-ins with passes, and what becomes of passes that fail, on the command line.
#include "tests/tools/sconce_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sconce::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kProduct =
    "graph(%a : Tensor):\n"
    "  %s : Tensor = aten::sigmoid(%a)\n"
    "  %m : Tensor = aten::mul(%a, %s)\n"
    "  return (%m)\n";

TEST(PassPluginOption, ItsPassesAreListed) {
  const ProgramResult listed = sconce({"passes", "--pass-plugin", plugin_file("custom_pass")});
  EXPECT_THAT(listed.out, AllOf(HasSubstr("use_silu"), HasSubstr("after optimize"), HasSubstr("custom_pass.so")));
  const auto json = json_of(sconce({"passes", "--json", "--pass-plugin", plugin_file("custom_pass")}));
  EXPECT_EQ(json.back()["name"], "pointwise_chains");
  EXPECT_THAT(sconce({"passes"}).out, Not(HasSubstr("use_silu")));
}

TEST(PassPluginOption, ItsPassesRunByName) {
  const ScratchFolder scratch;
  const std::string graph = scratch.write("g.ir", kProduct);
  const ProgramResult result = sconce({"opt", graph, "--passes", "use_silu", "--pass-plugin", plugin_file("custom_pass")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("aten::silu(%a)"));
  expect_usage_error({"opt", graph, "--passes", "use_sulu", "--pass-plugin", plugin_file("custom_pass")},
                     "did you mean 'use_silu'");
}

TEST(PassPluginOption, ItsBackendComputesSubgraphs) {
  const ScratchFolder scratch;
  const std::string model = write_model(
      scratch, "m.pt", "def forward(self, x: Tensor) -> Tensor:\n    return torch.relu(torch.neg(torch.abs(x - 1)) + 2)\n");
  const std::vector<std::string> with = {"--pass-plugin", plugin_file("custom_pass")};
  EXPECT_THAT(sconce({"dump", model, "--format", "plan", with[0], with[1]}).out, HasSubstr("[pointwise_chains]"));
  std::vector<std::string> run = {"run", model, "--input", "float32[3]", "--json"};
  const std::string alone = json_of(sconce(run))["output"].dump();
  run.insert(run.end(), with.begin(), with.end());
  EXPECT_EQ(json_of(sconce(run))["output"].dump(), alone);
}

TEST(PassPluginOption, ChangesThePlanOfAModelAndNotItsAnswers) {
  const ScratchFolder scratch;
  const std::string model =
      write_model(scratch, "m.pt", "def forward(self, x: Tensor) -> Tensor:\n    return x * torch.sigmoid(x)\n");
  const std::vector<std::string> with = {"--pass-plugin", plugin_file("custom_pass")};
  const ProgramResult plain = sconce({"dump", model, "--format", "plan"});
  const ProgramResult plugged = sconce({"dump", model, "--format", "plan", with[0], with[1]});
  EXPECT_THAT(plain.out, HasSubstr("aten::sigmoid"));
  EXPECT_THAT(plugged.out, AllOf(HasSubstr("aten::silu"), Not(HasSubstr("aten::sigmoid"))));
  EXPECT_EQ(sconce({"run", model, "--input", "float32[3]", with[0], with[1]}).exit_code, 0);
}

TEST(PassPluginOption, ALibraryForAnotherVersionIsRefusedWithBoth) {
  expect_usage_error({"passes", "--pass-plugin", plugin_file("other_version")}, "was built for sconce 99.0");
  expect_usage_error({"passes", "--pass-plugin", plugin_file("custom_operators")}, "is no library of passes");
}

TEST(PassPluginOption, AModelRunsWithoutThePassesThatFail) {
  const ScratchFolder scratch;  // for the reproducers
  const auto with_broken_passes = [&](std::vector<std::string> command) {
    command.insert(command.end(),
                   {model_file("mlp.pt"), "--input", "float32[2,16]", "--pass-plugin", plugin_file("broken_pass")});
    return sconce(command, {{"TMPDIR", scratch.path()}});
  };
  const ProgramResult ran = with_broken_passes({"run"});
  EXPECT_EQ(ran.exit_code, 0);
  for (const ProgramResult& result : {ran, with_broken_passes({"dump"}), with_broken_passes({"dump", "--format", "plan"})}) {
    EXPECT_THAT(result.err, HasSubstr("warning: pass throws: threw an exception: no such luck"));
  }
  const ProgramResult checked = with_broken_passes({"check"});
  EXPECT_EQ(checked.exit_code, 1) << "what agrees is a plan without them";
  EXPECT_THAT(checked.out, HasSubstr("against the list of passes: left out: pass throws: threw an exception: no such luck"));
  const auto refusals = json_of(with_broken_passes({"explain", "--json"}))["refusals"];
  ASSERT_EQ(refusals.size(), 3) << refusals;
  EXPECT_EQ(refusals[0]["what"], "pass lies");
  EXPECT_EQ(refusals[1]["what"], "pass throws");
  EXPECT_THAT(refusals[1]["reason"].get<std::string>(), AllOf(HasSubstr("no such luck"), HasSubstr("sconce replay ")));
  EXPECT_EQ(refusals[2]["what"], "pass breaks");

  // The reproducer names the library and fails again.
  const std::string reason = refusals[1]["reason"];
  const std::string reproducer = reason.substr(reason.find("sconce replay ") + 14);
  const ProgramResult again = sconce({"replay", reproducer});
  EXPECT_EQ(again.exit_code, 1) << again.err;
  EXPECT_THAT(again.out, AllOf(HasSubstr("pass throws: threw an exception: no such luck"), HasSubstr("graph(")));
}

TEST(Methods, MayCallTheModuleAsTheyLike) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "m.pt", "def forward(module, x: Tensor) -> Tensor:\n    return x + 1\n");
  EXPECT_THAT(sconce({"run", model, "--input", "float32[1]=ones"}).out, HasSubstr("float32[1]  2"));
}

TEST(DisabledPasses, AreLeftOutOfThePlan) {
  const ScratchFolder scratch;
  const auto passes_with = [&](const std::string& options) {
    const auto json = json_of(sconce({"explain", model_file("mlp.pt"), "--input", "float32[2,16]", "--json", "--options",
                                      scratch.write("o.json", options)}));
    return json["passes"].dump();
  };
  EXPECT_THAT(passes_with("{}"), HasSubstr("pool_constants"));
  EXPECT_THAT(passes_with("{\"disabled_passes\": [\"pool_constants\"]}"), Not(HasSubstr("pool_constants")));
  expect_usage_error({"passes", "--options", scratch.write("p.json", "{\"disabled_passes\": [\"pol_constants\"]}")},
                     "the nearest: pool_constants");
  expect_usage_error({"passes", "--options", scratch.write("q.json", "{\"disabled_passes\": \"peephole\"}")},
                     "a list of names");
  const std::string silu = scratch.write("r.json", "{\"disabled_passes\": [\"use_silu\"]}");
  expect_usage_error({"passes", "--options", silu}, "no pass named 'use_silu'");
  EXPECT_EQ(sconce({"passes", "--options", silu, "--pass-plugin", plugin_file("custom_pass")}).exit_code, 0);
}

TEST(OptionsFile, SaysNothingTwiceAndNothingInVain) {
  const ScratchFolder scratch;
  expect_usage_error({"passes", "--options", scratch.write("a.json", "{\"profiled_runs\": 3, \"profiled_runs\": 4}")},
                     "'profiled_runs' stands there twice");
  expect_usage_error({"passes", "--options", scratch.write("b.json", "{\"preserved\": [\"weight\"]}")},
                     "frozen modules only");
  expect_usage_error({"passes", "--options", scratch.path()}, "is a directory, not a file");
  expect_usage_error({"opt", scratch.path(), "--passes", "peephole"}, "is a directory, not a file");
  const std::string graph = scratch.write("g.ir", std::string("\xef\xbb\xbf") + kProduct);
  EXPECT_EQ(sconce({"opt", graph, "--passes", "peephole"}).exit_code, 0);
  expect_usage_error({"opt", graph, "--passes", ""}, "a name is missing");
}

TEST(CommandLineReplay, FindsAPassThatWorksNow) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("r.ir", "# pass: use_silu\n# problem: it threw\n" + std::string(kProduct));
  const auto json = json_of(sconce({"replay", file, "--json", "--pass-plugin", plugin_file("custom_pass")}));
  EXPECT_EQ(json["fails"], false);
  EXPECT_THAT(json["graph"].get<std::string>(), HasSubstr("aten::silu"));
}

TEST(CommandLineReplay, ExplainsWhatItCannotReplay) {
  const ScratchFolder scratch;
  expect_usage_error({"replay", "nowhere.ir"}, "nowhere.ir: cannot be read");
  expect_usage_error(
      {"replay", scratch.write("a.ir", "graph():\n  return ()\n")},
      "is no reproducer, which is the file sconce-PASS-PID-N.ir that sconce writes when a pass of yours fails");
  expect_usage_error({"replay", scratch.write("b.ir", "# pass: mine\ngraph():\n  return ()\n")},
                     "the pass 'mine' is in no library that is loaded");
  const ProgramResult malformed = sconce({"replay", scratch.write("c.ir", "# pass: mine\ngraph():\n  return (%x)\n")});
  EXPECT_EQ(malformed.exit_code, 2);
  EXPECT_THAT(malformed.err, HasSubstr("c.ir:3:11: %x is not defined here"));
}

}  // namespace
}  // namespace sconce::tests
