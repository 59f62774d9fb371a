// Ranks, or two steps of one training, may update by other programs: a step's plan, or a captured optimizer after any
// backward. Both have the same bits, whatever the sizes.
#include "tests/training/two_trainings.h"

#include <sconce/captured_optimizer.h>
#include <sconce/train_step.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>

namespace sconce {
namespace {

using testing::MakeOptimizer;
using Tensors = std::vector<at::Tensor>;
using namespace torch::optim;

struct Case {
  const char* name;
  MakeOptimizer make;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"SGD with momentum", testing::sgd},
      {"Adam", testing::adam},
      {"Adam with decay and amsgrad",
       [](Tensors parameters) {
         return std::make_unique<Adam>(std::move(parameters), AdamOptions(0.01).weight_decay(0.1).amsgrad(true));
       }},
      {"AdamW", [](Tensors parameters) { return std::make_unique<AdamW>(std::move(parameters), AdamWOptions(0.01)); }},
      {"RMSprop",
       [](Tensors parameters) {
         return std::make_unique<RMSprop>(std::move(parameters), RMSpropOptions(0.01).momentum(0.9));
       }},
      {"Adagrad",
       [](Tensors parameters) { return std::make_unique<Adagrad>(std::move(parameters), AdagradOptions(0.01)); }}};
  return all;
}

// The gradient of each parameter is a part of the argument, without any rounding.
torch::jit::Module sums() {
  torch::jit::Module module("sums");
  at::manual_seed(3);
  module.register_parameter("a", at::randn({5}), false);
  module.register_parameter("b", at::randn({8, 8}), false);
  module.register_parameter("c", at::randn({1000}), false);
  module.register_parameter("d", at::randn({90, 70}), false);
  module.define(R"(
def forward(self, x):
    a = (self.a * x[:5]).sum() + (self.b * x[5:69].view(8, 8)).sum()
    return a + (self.c * x[69:1069]).sum() + (self.d * x[1069:].view(90, 70)).sum()
)");
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.set_requires_grad(true);
  }
  return module;
}

TEST(UpdateBits, OfAPlanAreThoseOfACapturedOptimizer) {
  for (const Case& each : cases()) {
    for (const TrainOptions& options : {TrainOptions(), TrainOptions().clip_value(0.5)}) {
      SCOPED_TRACE(std::string(each.name) + (options.clip_value() ? ", value" : ""));
      torch::jit::Module ours = sums();
      torch::jit::Module theirs = testing::copy_of(ours);
      const auto our_optimizer = each.make(testing::parameters_of(ours));
      const auto their_optimizer = each.make(testing::parameters_of(theirs));
      const Options blocking = Options().compile(CompileMode::kBlocking);
      TrainStep step(
          accelerate(ours, blocking), [](const at::Tensor& y, const at::Tensor& target) { return y * target; },
          *our_optimizer, options);
      CapturedOptimizer captured(*their_optimizer, blocking);
      for (int i = 0; i < 12; ++i) {
        const at::Tensor x = at::randn({7369});
        step({x}, {at::ones({})});
        their_optimizer->zero_grad();
        theirs.forward({x}).toTensor().backward();
        if (options.clip_value()) {
          torch::nn::utils::clip_grad_value_(testing::parameters_of(theirs), *options.clip_value());
        }
        captured.step();
        for (size_t k = 0; k < 4; ++k) {
          const at::Tensor a = testing::parameters_of(ours)[k];
          const at::Tensor b = testing::parameters_of(theirs)[k];
          EXPECT_TRUE(at::equal(a, b)) << "step " << i << ", parameter " << k << ": " << (a != b).sum().item<int64_t>();
        }
      }
      EXPECT_EQ(step.explain().updated_by_plan, 11);
      EXPECT_EQ(captured.explain().captured_steps, 12);
    }
  }
}

}  // namespace
}  // namespace sconce
