// Reports on training by dump --stage differentiate, explain and bench --train --profile.
#include "tests/tools/sconce_program.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(roles, ::testing::IsSupersetOf({"input", "temporary"}));
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

TEST(TrainingReports, ProfileSplitsForwardAndBackward) {
  const auto json =
      json_of(sconce(on_mlp("bench", {"--train", "sgd", "--against", "eager", "--seconds", "0.05", "--profile", "--json"})));
  const auto& profile = json[0]["profile"];
  EXPECT_TRUE(profile["trains"].get<bool>());
  EXPECT_GT(profile["backward_seconds"].get<double>(), 0);
  EXPECT_LT(profile["backward_seconds"].get<double>(), profile["step_seconds"].get<double>());
  EXPECT_LT(profile["step_seconds"].get<double>(), profile["seconds"].get<double>());
  std::set<bool> directions;
  for (const auto& step : profile["steps"]) {
    directions.insert(step["is_backward"].get<bool>());
    EXPECT_LE(step["runs"], profile["calls"]) << "the model has no loops";
  }
  EXPECT_EQ(directions.size(), 2U);
  const ProgramResult text =
      sconce(on_mlp("bench", {"--train", "sgd", "--against", "eager", "--seconds", "0.05", "--profile"}));
  EXPECT_THAT(text.out, HasSubstr("training steps on one thread: "));
  EXPECT_THAT(text.out, HasSubstr("and backward plans "));
}

}  // namespace
}  // namespace sconce::tests
