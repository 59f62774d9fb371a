#include "report/explanation_text.h"
#include "tests/tools/sconce_program.h"
#include "tools/sconce/report/errors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kRaises = R"(
def forward(self, x: Tensor, n: int):
    y = x.relu()
    assert n < 3, "too many"
    return torch.mm(y, y)
)";

TEST(Explain, ShowsWhatItHasBeforeTheErrorOfTheModel) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "raises.pt", kRaises);
  const ProgramResult raised = sconce({"explain", model, "--input", "float32[2,2]", "3"});
  EXPECT_EQ(raised.exit_code, 2);
  EXPECT_THAT(raised.out, HasSubstr("generic plan: "));
  EXPECT_THAT(raised.out, HasSubstr("invocations   1\n"));
  EXPECT_THAT(raised.err, ::testing::StartsWith("sconce: error: AssertionError: too many\n"));

  const ProgramResult failed = sconce({"explain", model, "--input", "float32[2,3]", "1", "--json"});
  EXPECT_EQ(failed.exit_code, 2);
  const auto json = json_of(failed);
  EXPECT_THAT(json["error"].get<std::string>(), HasSubstr("mat1 and mat2"));
  EXPECT_THAT(json["node"].get<std::string>(), HasSubstr("aten::mm("));
  EXPECT_THAT(json["source"].get<std::string>(), ::testing::EndsWith(":5")) << "the line in the model's source";
  EXPECT_EQ(json["exit_code"], 2);
  EXPECT_EQ(json["counters"]["invocations"], 1);
  EXPECT_EQ(json["plans"].size(), 1);
}

TEST(Explain, ARefusalNamesNodeAndSource) {
  const cli::Failure refusal = cli::describe_failure(
      cli::RefusedError("sconce cannot run forward: prim::x is not supported yet\n  node: %y : Tensor = prim::x(%x)\n"
                        "  at:   model.py:12:8 in Block.forward\n        model.py:30:4 in Model.forward"));
  EXPECT_EQ(refusal.node, "%y : Tensor = prim::x(%x)");
  EXPECT_EQ(refusal.source, "model.py:12:8 in Block.forward");
  EXPECT_EQ(refusal.exit_code, 1);
  EXPECT_EQ(cli::to_json(refusal)["kind"], "refused");
  EXPECT_FALSE(cli::to_json(cli::describe_failure(cli::UserError("nowhere.pt: no such file"))).contains("node"));
}

// A method that cannot be run has no plans; what there is to tell is still told.
TEST(Explain, TellsWhyAMethodHasNoPlans) {
  Explanation explanation;
  explanation.method = "forward";
  explanation.refusals.push_back({"method forward", "prim::x is not supported yet", "%y : Tensor = prim::x(%x)", "m.py:1"});
  EXPECT_EQ(sconce::to_text(explanation, std::vector<std::string>(), {})
                .substr(0, 150)
                .find("forward: cannot be run\n\ninputs: none\n\nplans: none\n"),
            0);
  EXPECT_THAT(sconce::to_text(explanation, std::vector<std::string>(), {}),
              HasSubstr("node: %y : Tensor = prim::x(%x)\n    m.py:1\n"));
}

TEST(Explain, AddsTheRunsOfAPassUp) {
  Explanation explanation;
  explanation.method = "forward";
  explanation.passes = {{"peephole", 0.001, true}, {"eliminate_dead_nodes", 0.004, false}, {"peephole", 0.002, false}};
  EXPECT_THAT(sconce::to_text(explanation, std::vector<std::string>(), {}),
              HasSubstr("  pass                     time  runs  changed\n"
                        "  --------------------  -------  ----  -------\n"
                        "  peephole              3.00 ms     2        1\n"
                        "  eliminate_dead_nodes  4.00 ms     1        0\n"));
  EXPECT_EQ(json_of(explanation)["passes"].size(), 3);
}

TEST(Explain, AddsUpThePassesOfSpecializedPlans) {
  Explanation explanation;
  explanation.method = "forward";
  explanation.plans.resize(3);
  EXPECT_THAT(sconce::to_text(explanation, std::vector<std::string>(), {}), Not(HasSubstr("passes of 0")));
  explanation.plans[1].passes = {{"differentiate", 0.001, true, "specialized plans"}};
  explanation.plans[2].passes = {{"differentiate", 0.002, false, "specialized plans"}};
  EXPECT_THAT(sconce::to_text(explanation, std::vector<std::string>(), {}),
              HasSubstr("\npasses of 2 specialized plans:\n"
                        "  pass              time  runs  changed\n"
                        "  -------------  -------  ----  -------\n"
                        "  differentiate  3.00 ms     2        1\n"));
  EXPECT_EQ(json_of(explanation)["plans"][1]["passes"][0]["stage"], "specialized plans");
}

TEST(Explain, TellsHowToBringAnOperatorIntoADifferentiableSubgraph) {
  Explanation explanation;
  explanation.plans.resize(1);
  explanation.plans[0].gradients =
      GradientExplanation{.outside = 3,
                          .not_differentiated = {{.op = "aten::relu_", .reason = NotDifferentiated::kEffects, .nodes = 2},
                                                 {.op = "aten::sort", .reason = NotDifferentiated::kComplex, .nodes = 1}}};
  const std::string text = sconce::to_text(explanation, std::vector<std::string>(), {});
  EXPECT_THAT(
      text,
      HasSubstr("remedy if it writes memory or has other effects: use the functional operator: relu(x), not relu_(x)\n"));
  EXPECT_EQ(text.find("remedy"), text.rfind("remedy")) << "none is known for complex numbers";
}

TEST(Explain, SaysWhichGradientFormulasAreRecorded) {
  const ScratchFolder scratch;
  torch::jit::Module module("Bessel");
  module.register_parameter("w", at::ones({2}).requires_grad_(true), /*is_buffer=*/false);
  module.define(
      "def forward(self, x: Tensor):\n    y = x * self.w\n"
      "    return torch.special_i1(torch.tanh(torch.special_i1(y))) * torch.sinc(y)\n");
  const std::string model = scratch.path() + "/bessel.pt";
  module.save(model);
  const ProgramResult text = sconce({"explain", model, "--input", "float32[2,2]"});
  EXPECT_THAT(text.out, HasSubstr("nodes  operator with a gradient formula recorded from LibTorch's autograd  one of them"));
  EXPECT_THAT(text.out, ::testing::ContainsRegex("    2  aten::special_i1 "));
  const auto json = json_of(sconce({"explain", model, "--input", "float32[2,2]", "--json"}));
  size_t plans = 0;
  for (const auto& plan : json["plans"]) {
    if (!plan["gradients"].is_null()) {
      ++plans;
      const auto& recorded = plan["gradients"]["recorded"];
      ASSERT_EQ(recorded.size(), 2);
      EXPECT_EQ(recorded[0]["operator"], "aten::special_i1");
      EXPECT_EQ(recorded[0]["nodes"], 2);
      EXPECT_THAT(recorded[0]["node"].get<std::string>(), HasSubstr("aten::special_i1(%y"));
      EXPECT_EQ(recorded[1]["operator"], "aten::sinc");
    }
  }
  EXPECT_EQ(plans, 1U);
}

TEST(Explain, EveryFailureInJsonNamesNodeAndSource) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "raises.pt", kRaises);
  const auto json = json_of(sconce({"run", model, "--input", "float32[2,3]", "1", "--json"}));
  EXPECT_THAT(json["node"].get<std::string>(), HasSubstr("aten::mm("));
  EXPECT_FALSE(json["source"].get<std::string>().empty());
}

TEST(Explain, SaysInAReadableLineWhatEachInputIs) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "raises.pt", kRaises);
  const ProgramResult text = sconce({"explain", model, "--input", "float32[2,2]", "1"});
  EXPECT_THAT(text.out, HasSubstr("\ninputs:\n  x: float32 [2, 2] contiguous\n  n: int 1\n"));
  EXPECT_THAT(text.out, HasSubstr("serves all arguments; now: 1 spec (--verbose shows it)"));
  EXPECT_THAT(text.out, Not(HasSubstr("Float(*, *)")));
  const ProgramResult verbose = sconce({"explain", model, "--verbose", "--input", "float32[2,2]", "1"});
  EXPECT_THAT(verbose.out, HasSubstr("      Float(*, *)\n"));
  const auto json = json_of(sconce({"explain", model, "--input", "float32[2,2]", "1", "--json"}));
  EXPECT_EQ(json["inputs"][0], "x: float32 [2, 2] contiguous");
  EXPECT_EQ(json["plans"][0]["specs"].size(), 1);
}

// Nodes that sum gradients have no line of their own; those of a subgraph name the line where it begins.
TEST(Explain, NamesALineOfEveryStepThatIsNotPrepared) {
  const auto json = json_of(sconce({"explain", model_file("dlrm.pt"), "--inputs", model_file("dlrm.cases.pt"), "--json"}));
  size_t entries = 0;
  for (const auto& plan : json["plans"]) {
    if (plan["gradients"].is_null()) {
      continue;
    }
    for (const auto& subgraph : plan["gradients"]["subgraphs"]) {
      for (const char* direction : {"forward", "backward"}) {
        for (const auto& entry : subgraph[direction]["not_prepared"]) {
          EXPECT_NE(entry["source"], "") << entry;
          ++entries;
        }
      }
    }
  }
  EXPECT_GT(entries, 0U);
}

TEST(Explain, TellsARemedyOncePerReason) {
  Explanation explanation;
  PlanExplanation& plan = explanation.plans.emplace_back();
  plan.not_prepared = {{.op = "aten::sort", .reason = NotPrepared::kNoKernel, .steps = 2},
                       {.op = "aten::cat", .reason = NotPrepared::kListArgument, .steps = 1},
                       {.op = "aten::arange", .reason = NotPrepared::kNoKernel, .steps = 1},
                       {.op = "aten::topk", .reason = NotPrepared::kSeveralResults, .steps = 1}};
  const std::string text = sconce::to_text(explanation, std::vector<std::string>(), {});
  EXPECT_THAT(text, HasSubstr("      remedy if it has no prepared kernel: use other operators, add a kernel "
                              "(docs/adding_an_op.md), or let a backend run it (docs/adding_a_pass.md)\n"
                              "      remedy if its list of tensors is not made right before it, for it alone: build the "
                              "list in the expression that uses it\n"));
  EXPECT_EQ(text.find("remedy", text.rfind("remedy if its list") + 1), std::string::npos) << "none is known of the others";
}

}  // namespace
}  // namespace sconce::tests
