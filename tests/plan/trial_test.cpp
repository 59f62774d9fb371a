// Kernels that keep weights beside LibTorch's operators: which one serves, in the calls that time them and after.
#include "plan/prepared/trial.h"

#include "base/compile_queue.h"
#include "tests/support/graphs.h"

#include <sconce/module.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sconce::testing {
namespace {

constexpr int64_t kRows = 64;

// A layer whose features no other test has, so that nobody has timed it.
struct Layer {
  at::Tensor weight;
  Module module;
};

Layer layer_of(int64_t features, const Options& options = Options().compile(CompileMode::kBlocking)) {
  const at::Tensor weight = at::randn({256, features});
  torch::jit::Module script = module_of("def forward(self, x):\n    return torch.linear(x, self.w)\n", {{"w", weight}});
  script.eval();
  return {weight, accelerate(script, options)};
}

std::vector<TimedStepExplanation> timed_in(const Layer& layer) {
  std::vector<TimedStepExplanation> all;
  for (const PlanExplanation& plan : layer.module.method("forward").explain().plans) {
    all.insert(all.end(), plan.timed.begin(), plan.timed.end());
  }
  return all;
}

bool leaves_to_libtorch(const Layer& layer) {
  bool leaves = false;
  for (const PlanExplanation& plan : layer.module.method("forward").explain().plans) {
    for (const NotPreparedExplanation& entry : plan.not_prepared) {
      leaves = leaves || entry.reason == NotPrepared::kSlower;
    }
  }
  return leaves;
}

// The key that a trial of such a layer has, as the words of its operands.
std::string key_of_layer(int64_t features) {
  const std::string n = std::to_string(features);
  return "aten::linear\nFloat [64, " + n + "] [" + n + ", 1]\nFloat [256, " + n + "] [" + n + ", 1]\nNone\n" +
         std::to_string(at::get_num_threads()) + " threads\n";
}

void call(const Layer& layer, int calls) {
  const at::NoGradGuard no_grad;
  for (int i = 0; i < calls; ++i) {
    const at::Tensor x = at::randn({kRows, layer.weight.size(1)});
    const at::Tensor got = layer.module.forward({x}).toTensor();
    EXPECT_TRUE(at::allclose(got, at::linear(x, layer.weight), 1e-4, 1e-4)) << "call " << i;
  }
}

TEST(Trials, ComeToAResultInTheFirstCalls) {
  const Layer layer = layer_of(211);
  call(layer, 60);
  const auto timed = timed_in(layer);
  ASSERT_EQ(timed.size(), 1U);
  EXPECT_EQ(timed[0].op, "aten::linear");
  EXPECT_GT(timed[0].kernel_seconds, 0);
  EXPECT_GT(timed[0].operator_seconds, 0);
  EXPECT_TRUE(TimedChoices::of_process().find(key_of_layer(211)));
}

TEST(Trials, LeaveToLibTorchWhatIsKnownToBeFasterThere) {
  TimedChoices::of_process().note(key_of_layer(212), {.kernel = 2e-3, .op = 1e-3});
  const Layer layer = layer_of(212);
  call(layer, 20);
  EXPECT_TRUE(leaves_to_libtorch(layer));
  ASSERT_EQ(timed_in(layer).size(), 1U);
  EXPECT_FALSE(timed_in(layer)[0].is_by_kernel);
}

TEST(Trials, LetTheKernelServeWhatIsKnownToBeFasterByIt) {
  TimedChoices::of_process().note(key_of_layer(213), {.kernel = 1e-3, .op = 2e-3});
  const Layer layer = layer_of(213);
  call(layer, 20);
  EXPECT_FALSE(leaves_to_libtorch(layer));
  ASSERT_EQ(timed_in(layer).size(), 1U);
  EXPECT_TRUE(timed_in(layer)[0].is_by_kernel);
}

TEST(Trials, AreNotHeldOnRequest) {
  for (const Options& options :
       {Options().compile(CompileMode::kBlocking).time_choices(false), Options().compile(CompileMode::kBlocking).exact(true),
        Options().compile(CompileMode::kBlocking).pack_weights(false)}) {
    const Layer layer = layer_of(214, options);
    call(layer, 20);
    EXPECT_TRUE(timed_in(layer).empty());
    EXPECT_FALSE(TimedChoices::of_process().find(key_of_layer(214)));
  }
}

// Sizes that are new in each call would be LibTorch's in each.
TEST(Trials, AreNotHeldForSizesThatChange) {
  const at::NoGradGuard no_grad;
  const Layer layer = layer_of(215);
  call(layer, 60);
  const auto timed = timed_in(layer);
  for (int64_t rows = 1; rows < 40; ++rows) {
    layer.module.forward({at::randn({rows, 215})});
  }
  EXPECT_EQ(timed_in(layer).size(), timed.size());
}

}  // namespace
}  // namespace sconce::testing
