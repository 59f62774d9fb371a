// Compiles run passes in the order that executor/pass_order.h demands.
#include "tests/support/graphs.h"

#include "executor/pass_order.h"

#include <sconce/module.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

// The passes that one stage ran, in their order.
using Sequence = std::vector<std::string>;

std::vector<Sequence> stages_of(std::vector<PassTiming> timings) {
  std::vector<Sequence> stages;
  // Parts of `differentiate`, in the midst of its stage.
  std::erase_if(timings, [](const PassTiming& timing) { return timing.stage == "joint graph"; });
  for (size_t i = 0; i < timings.size(); ++i) {
    if (i == 0 || timings[i].stage != timings[i - 1].stage) {
      stages.emplace_back();
    }
    stages.back().push_back(timings[i].pass);
  }
  return stages;
}

bool runs_both(const Sequence& stage, const PassOrder& order) {
  return std::ranges::count(stage, order.pass) > 0 && std::ranges::count(stage, order.other) > 0;
}

// Requires that the stage runs both.
bool holds(const Sequence& stage, const PassOrder& order) {
  if (order.when == PassOrder::When::kBefore) {
    return std::ranges::find(stage, order.pass) < std::ranges::find(stage, order.other);
  }
  const auto last = std::find(stage.rbegin(), stage.rend(), order.pass);
  return last < std::find(stage.rbegin(), stage.rend(), order.other);
}

// The passes of the compiles for inference and for training, of a module that is frozen or not.
std::vector<std::vector<PassTiming>> compiles_of_a_module(bool frozen) {
  torch::jit::Module script = module_of(R"(
def forward(self, x):
    h = torch.tanh(x * self.scale) if x.dim() == 2 else x
    for i in range(2):
        h = torch.sigmoid(h + x)
    return h.sum()
)",
                                        {{"scale", at::ones({4})}});
  script.eval();
  Options options;
  options.compile(CompileMode::kBlocking).frozen(frozen);
  const Module module = accelerate(script, options);
  module.forward({at::ones({3, 4}).requires_grad_()});
  {
    const at::NoGradGuard no_grad;
    module.forward({at::ones({3, 4})});
  }
  const Explanation explanation = module.method("forward").explain();
  std::vector<std::vector<PassTiming>> compiles = {explanation.passes};
  EXPECT_EQ(explanation.plans.size(), 3U) << "the generic plan, and one for training and for inference";
  for (const PlanExplanation& plan : explanation.plans) {
    compiles.push_back(plan.passes);
  }
  return compiles;
}

TEST(PassOrder, IsThatOfCompiles) {
  std::vector<Sequence> stages;
  for (const bool frozen : {true, false}) {
    for (const auto& timings : compiles_of_a_module(frozen)) {
      std::ranges::move(stages_of(timings), std::back_inserter(stages));
    }
  }
  for (const PassOrder& order : kPassOrder) {
    const std::string text = std::string(order.pass) +
                             (order.when == PassOrder::When::kBefore ? " comes before " : " comes after ") +
                             std::string(order.other) + ", because " + std::string(order.reason);
    bool is_met = false;
    for (const Sequence& stage : stages) {
      if (runs_both(stage, order)) {
        is_met = true;
        EXPECT_TRUE(holds(stage, order)) << text << "; but: " << ::testing::PrintToString(stage);
      }
    }
    EXPECT_TRUE(is_met) << "no stage runs both: " << text;
  }
}

TEST(PassTimings, NameTheStages) {
  std::set<std::string> stages;
  for (const auto& timings : compiles_of_a_module(/*frozen=*/true)) {
    for (const PassTiming& timing : timings) {
      stages.insert(timing.stage);
    }
  }
  EXPECT_EQ(stages, (std::set<std::string>{"inline", "freeze", "required", "optimize", "specialized plans", "joint graph",
                                           "forward", "backward", "fuse"}));
}

TEST(PassOrder, IsViolatedByOtherOrders) {
  const PassOrder before{"a", kBefore, "b", ""};
  EXPECT_TRUE(holds({"a", "b", "a"}, before));
  EXPECT_FALSE(holds({"b", "a", "b"}, before));
  const PassOrder after{"a", kAfter, "b", ""};
  EXPECT_TRUE(holds({"a", "b", "a"}, after));
  EXPECT_FALSE(holds({"b", "a", "b"}, after));
}

TEST(PassOrder, NamesEachPairOnce) {
  std::set<std::pair<std::string_view, std::string_view>> pairs;
  for (const PassOrder& order : kPassOrder) {
    EXPECT_TRUE(pairs.emplace(order.pass, order.other).second) << order.pass << ", " << order.other;
    EXPECT_FALSE(order.reason.empty());
  }
}

}  // namespace
}  // namespace sconce::testing
