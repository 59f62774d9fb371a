// Reports on training by dump --stage differentiate, explain and bench --train --profile.
#include "tests/tools/sconce_program.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <numeric>
#include <regex>
#include <set>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> on_mlp(const std::string& command, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {command, model_file("mlp.pt"), "--inputs", model_file("mlp.cases.pt")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Returns the numbers of lines that begin with a share: "12 %".
std::vector<double> shares_in(const std::string& text) {
  static const std::regex share("\n *([0-9.]+) %  ");
  std::vector<double> shares;
  for (std::sregex_iterator each(text.begin(), text.end(), share); each != std::sregex_iterator(); ++each) {
    shares.push_back(std::stod((*each)[1]));
  }
  return shares;
}

TEST(TrainingReports, DumpShowsForwardBackwardAndSavedValues) {
  const ProgramResult text = sconce(on_mlp("dump", {"--stage", "differentiate"}));
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("with sconce::differentiable_0 = graph("));
  EXPECT_THAT(text.out, HasSubstr("with sconce::differentiable_0 Backward = graph("));
  EXPECT_THAT(text.out, HasSubstr("#   df: sconce::differentiable_0 Backward\n"));

  const auto json = json_of(sconce(on_mlp("dump", {"--stage", "differentiate", "--json"})));
  const auto& subgraph = json["dumps"][0]["subgraphs"][0];
  EXPECT_THAT(subgraph["source"].get<std::string>(), HasSubstr("linear.py:"));
  EXPECT_THAT(subgraph["forward"].get<std::string>(), HasSubstr("aten::gelu("));
  EXPECT_THAT(subgraph["backward"].get<std::string>(), HasSubstr("aten::gelu_backward("));
  size_t bytes = 0;
  std::set<std::string> roles;
  for (const auto& saved : subgraph["saved"]) {
    roles.insert(saved["role"].get<std::string>());
    bytes += saved["bytes"].is_null() ? 0 : saved["bytes"].get<size_t>();
    EXPECT_FALSE(saved["held"].is_null()) << saved;
  }
  EXPECT_EQ(subgraph["saved_bytes"].get<size_t>(), bytes);
  EXPECT_GT(bytes, 4U * 16 * 4) << "the input is saved for the gradient of the first weight";
  EXPECT_THAT(roles, ::testing::IsSupersetOf({"input", "intermediate"}));
}

// The forward graph of such a loop returns a condition after the saved values.
TEST(TrainingReports, DumpPairsTheSavedValuesOfALoopThatMayNotRun) {
  const auto json = json_of(
      sconce({"dump", model_file("rnn.pt"), "--inputs", model_file("rnn.cases.pt"), "--stage", "differentiate", "--json"}));
  const auto& subgraph = json["dumps"][0]["subgraphs"][0];
  EXPECT_THAT(json["dumps"][0].dump(), HasSubstr(" else "));
  for (const auto& saved : subgraph["saved"]) {
    EXPECT_FALSE(saved["held"].is_null()) << saved;
  }
}

TEST(TrainingReports, ADumpedPlanIsAGraphFile) {
  const ScratchFolder scratch;
  const std::string file = scratch.path() + "/plan.ir";
  EXPECT_EQ(sconce(on_mlp("dump", {"--stage", "differentiate", "--output", file})).exit_code, 0);
  const ProgramResult read = sconce({"opt", file, "--passes", "eliminate_dead_nodes"});
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_THAT(read.out, HasSubstr("sconce::differentiable_0 Backward"));
}

TEST(TrainingReports, DumpDrawsAndRefuses) {
  const ProgramResult page = sconce(on_mlp("dump", {"--stage", "differentiate", "--format", "html"}));
  EXPECT_THAT(page.out, HasSubstr("<h4>f</h4>"));
  EXPECT_THAT(page.out, HasSubstr("<h4>df</h4>"));
  const ProgramResult dot = sconce(on_mlp("dump", {"--stage", "differentiate", "--format", "dot"}));
  EXPECT_THAT(dot.out, HasSubstr("differentiable Backward"));
  const auto all = json_of(sconce(on_mlp("dump", {"--stage", "all", "--json"})));
  EXPECT_EQ(all["dumps"].back()["stage"], "differentiate");
  expect_usage_error({"dump", model_file("mlp.pt"), "--stage", "differentiate"}, "--stage differentiate: needs arguments");
  expect_refusal(on_mlp("dump", {"--stage", "differentiate", "--frozen"}),
                 "no argument and no parameter requires a gradient");
  const ProgramResult raised = sconce({"dump", model_file("mlp.pt"), "--stage", "all", "--input", "float32[4,17]"});
  EXPECT_EQ(raised.exit_code, 0) << "the other stages need no arguments";
  EXPECT_THAT(raised.err, HasSubstr("sconce: note: stage differentiate is left out: "));
  EXPECT_THAT(raised.out, HasSubstr("# forward, optimize"));
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "one.pt", "def forward(self, x: Tensor):\n    return x.relu()\n");
  expect_refusal({"dump", model, "--stage", "differentiate", "--input", "float32[2]"}, "requires a gradient");
}

TEST(TrainingReports, ExplainTellsWhatIsInsideAndWhy) {
  const ProgramResult text = sconce(on_mlp("explain", {"--calls", "2"}));
  EXPECT_THAT(text.out, HasSubstr("5 in 1 differentiable subgraph; autograd records 0 one by one"));
  EXPECT_THAT(text.out, Not(HasSubstr("sconce::differentiable ")));
  const auto json =
      json_of(sconce({"explain", model_file("gru_train.pt"), "--inputs", model_file("gru_train.cases.pt"), "--json"}));
  const auto& gradients = json["plans"].back()["gradients"];
  EXPECT_EQ(gradients["inside"].get<size_t>() + gradients["outside"].get<size_t>(), 2U);
  bool has_gru = false;
  for (const auto& entry : gradients["not_differentiated"]) {
    has_gru = has_gru || entry["operator"] == "aten::gru";
    EXPECT_NE(entry["reason"], "");
  }
  EXPECT_TRUE(has_gru);
}

// The second call of a spec asks for its plan, which the third runs, with backward.
TEST(TrainingReports, ExplainRunsBackwardInItsOwnPlan) {
  const ProgramResult two = sconce(on_mlp("explain", {"--calls", "2"}));
  EXPECT_THAT(two.out, HasSubstr("; not run"));
  const ProgramResult three = sconce(on_mlp("explain", {}));
  EXPECT_THAT(three.out, HasSubstr("in 1 differentiable subgraph"));
  EXPECT_THAT(three.out, Not(HasSubstr("; not run")));
  const auto json = json_of(sconce(on_mlp("explain", {"--json"})));
  EXPECT_EQ(json["plans"].back()["runs"], 1);
  const auto& subgraph = json["plans"].back()["gradients"]["subgraphs"][0];
  for (const char* direction : {"forward", "backward"}) {
    EXPECT_EQ(subgraph[direction]["frames"], 1) << direction;
    EXPECT_TRUE(subgraph[direction]["memory"]["has_layout"]) << direction;
  }
}

TEST(TrainingReports, ExplainReportsABackwardThatRaises) {
  const ScratchFolder scratch;
  const std::string model = scratch.path() + "/raises.pt";
  torch::jit::Module module("Model");
  module.register_parameter("w", at::ones({2}).requires_grad_(), /*is_buffer=*/false);
  module.define(
      "def forward(self, x: Tensor):\n    y = (self.w * x).exp()\n    z = y.sum()\n    y.mul_(2)\n    return z, y\n");
  module.save(model);
  const ProgramResult result = sconce({"explain", model, "--input", "float32[2]"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, HasSubstr("generic plan: "));
  EXPECT_THAT(result.err, HasSubstr("modified by an inplace operation"));
  EXPECT_EQ(sconce({"explain", model, "--input", "float32[2]", "--no-grad"}).exit_code, 0);
}

TEST(TrainingReports, DumpShowsTheKernelsOfSubgraphs) {
  const auto json = json_of(sconce(on_mlp("dump", {"--format", "kernel", "--json"})));
  std::set<std::string> uses;
  bool has_gelu_backward = false;
  for (const auto& kernel : json["dumps"]) {
    uses.insert(kernel["first_use"].get<std::string>());
    const bool is_of_gelu = kernel["groups"].dump().find("gelu_backward") != std::string::npos;
    has_gelu_backward = has_gelu_backward || (is_of_gelu && kernel["first_use"] == "backward");
    EXPECT_NE(kernel["assembly"], "") << kernel["text"];
  }
  EXPECT_TRUE(has_gelu_backward) << ::testing::PrintToString(uses);
  const ScratchFolder scratch;
  const std::string model =
      write_model(scratch, "plain.pt", "def forward(self, x: Tensor):\n    return (x * 2).sigmoid().tanh()\n");
  const auto plain = json_of(sconce({"dump", model, "--format", "kernel", "--input", "float32[8,8]", "--json"}));
  EXPECT_EQ(plain["dumps"][0]["first_use"], "a call without gradients");
}

TEST(TrainingReports, ProfileIsOfTheRecordedStep) {
  const std::vector<std::string> bench =
      on_mlp("bench", {"--train", "sgd", "--against", "eager", "--seconds", "0.05", "--profile"});
  const ProgramResult text = sconce(bench);
  EXPECT_THAT(text.out, HasSubstr(" recorded training steps on one thread: "));
  EXPECT_THAT(text.out, Not(HasSubstr("backward plans")));
  EXPECT_THAT(text.out, HasSubstr("per run  operator")) << "the second table is by operator";
  EXPECT_THAT(text.out, Not(HasSubstr("steps/call")));
  const std::vector<double> shares = shares_in(text.out);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 200, 10) << "two tables of the whole step\n" << text.out;
  std::vector<std::string> with_json = bench;
  with_json.emplace_back("--json");
  const auto profile = json_of(sconce(with_json))["calls"][0]["profile"];
  EXPECT_TRUE(profile["trains"].get<bool>());
  EXPECT_TRUE(profile["is_one_plan"].get<bool>());
  EXPECT_EQ(profile["backward_seconds"].get<double>(), 0);
  EXPECT_LT(profile["step_seconds"].get<double>(), profile["seconds"].get<double>());
  std::set<std::string> plans;
  bool has_update = false;
  for (const auto& step : profile["steps"]) {
    plans.insert(step["plan"].get<std::string>());
    EXPECT_EQ(step["runs"], profile["calls"]) << step["operator"];
    has_update = has_update || step["operator"].get<std::string>().find("add_") != std::string::npos;
  }
  EXPECT_EQ(plans, std::set<std::string>{"train step"});
  EXPECT_TRUE(has_update) << "the plan updates the parameters";
}

// The sizes of what an index with a mask returns depend on elements, so that no plan runs the whole step.
TEST(TrainingReports, ProfileSplitsForwardAndBackwardOfStepsThatAreNotRecorded) {
  const ScratchFolder scratch;
  torch::jit::Module module("m");
  module.register_parameter("w", at::ones({256}).set_requires_grad(true), /*is_buffer=*/false);
  module.define("def forward(self, x):\n    return ((x * self.w).tanh() * x).sigmoid()[x > 0]\n");
  const std::string model = scratch.path() + "/m.pt";
  module.save(model);
  const std::vector<std::string> bench = {"bench", model,       "--input", "float32[256,256]", "--train", "sgd", "--against",
                                          "eager", "--seconds", "0.05",    "--profile"};
  std::vector<std::string> with_json = bench;
  with_json.emplace_back("--json");
  const auto profile = json_of(sconce(with_json))["calls"][0]["profile"];
  EXPECT_TRUE(profile["trains"].get<bool>());
  EXPECT_FALSE(profile["is_one_plan"].get<bool>());
  EXPECT_GT(profile["backward_seconds"].get<double>(), 0);
  EXPECT_LT(profile["backward_seconds"].get<double>(), profile["step_seconds"].get<double>());
  EXPECT_LT(profile["step_seconds"].get<double>(), profile["seconds"].get<double>());
  EXPECT_DOUBLE_EQ(profile["step_seconds"].get<double>() + profile["outside_of_plans_seconds"].get<double>(),
                   profile["seconds"].get<double>());
  std::set<bool> directions;
  for (const auto& step : profile["steps"]) {
    directions.insert(step["is_backward"].get<bool>());
    EXPECT_LE(step["runs"], profile["calls"]) << "the model has no loops";
  }
  EXPECT_EQ(directions.size(), 2U);
  const ProgramResult text = sconce(bench);
  EXPECT_THAT(text.out, HasSubstr(" training steps on one thread: "));
  EXPECT_THAT(text.out, HasSubstr("and backward plans "));
  const std::vector<double> shares = shares_in(text.out);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 200, 10) << "two tables of the whole step\n" << text.out;
  EXPECT_THAT(text.out, HasSubstr(" outside of plans\n"));
}

}  // namespace
}  // namespace sconce::tests
