// The programs that docs/recording.md quotes, with what they print.
#include <sconce/captured_optimizer.h>
#include <sconce/compiled_backward.h>
#include <sconce/module.h>
#include <sconce/trace.h>
#include <sconce/train_step.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/adam.h>

#include <iostream>
#include <vector>

namespace {

using testing::HasSubstr;

// While it lives, what the program prints is kept.
class Printed {
 public:
  Printed() { testing::internal::CaptureStdout(); }
  static std::string text() { return testing::internal::GetCapturedStdout(); }
};

sconce::Module small_model() {
  torch::jit::Module module("SmallModel");
  module.register_parameter("weight", at::randn({16, 4}).set_requires_grad(true), /*is_buffer=*/false);
  module.define(R"(
def forward(self, x):
    return torch.tanh(torch.mm(x, self.weight))
)");
  return sconce::accelerate(module);
}

TEST(RecordingPage, TracesAFunction) {
  const Printed printed;
  const at::Tensor weight = at::randn({16, 4}).set_requires_grad(true);
  const sconce::TracedFunction layer = sconce::trace(
      [weight](std::vector<at::Tensor> in) -> std::vector<at::Tensor> { return {at::gelu(in[0].mm(weight))}; });
  for (int call = 0; call < 5; ++call) {
    const at::Tensor y = layer({at::randn({8, 16})}).front();
    y.pow(2).mean().backward();
  }
  for (const auto& trace : layer.explain().traces) {
    std::cout << trace.arguments << ", " << trace.calls << " calls: " << (trace.plan ? "a plan" : trace.refusal) << '\n';
  }
  EXPECT_EQ(printed.text(), "Float[8,16], 5 calls: a plan\n");
  EXPECT_TRUE(weight.grad().defined());
}

TEST(RecordingPage, CompilesBackward) {
  const Printed printed;
  const at::Tensor weight = at::randn({16, 4}).set_requires_grad(true);
  const sconce::BackwardCache plans{sconce::Options()};
  for (int step = 0; step < 5; ++step) {
    const at::Tensor loss = at::tanh(at::randn({8, 16}).mm(weight)).pow(2).mean();
    const sconce::CompiledBackward scope(plans);  // for this thread, to the end of the block
    loss.backward();
    plans.wait_for_compiles();  // a program need not wait: LibTorch's engine runs backward until there is a plan
  }
  const sconce::BackwardExplanation explanation = plans.explain();
  std::cout << explanation.recorded << " recorded, " << explanation.by_plan << " by plan, " << explanation.by_engine
            << " by LibTorch's engine\n";
  for (const auto& [reason, times] : explanation.reasons) {
    std::cout << times << " times: " << reason << '\n';
  }
  EXPECT_EQ(printed.text(), "1 recorded, 4 by plan, 0 by LibTorch's engine\n");
}

TEST(RecordingPage, CapturesAnOptimizer) {
  const Printed printed;
  sconce::Module model = small_model();
  torch::optim::Adam adam(model.parameters(), torch::optim::AdamOptions(1e-2));
  sconce::CapturedOptimizer optimizer(adam);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    model.forward({at::randn({8, 16})}).toTensor().pow(2).mean().backward();
    optimizer.step();
  }
  std::cout << to_string(optimizer.explain());
  EXPECT_THAT(printed.text(), HasSubstr("Adam"));
  EXPECT_EQ(optimizer.explain().captured_steps, 5U);
}

TEST(RecordingPage, TrainsInSteps) {
  const Printed printed;
  const at::Tensor x = at::randn({8, 16});
  const at::Tensor target = at::zeros({8, 4});
  sconce::Module model = small_model();
  torch::optim::Adam adam(model.parameters(), torch::optim::AdamOptions(1e-2));
  sconce::TrainStep step(
      model, [](const at::Tensor& y, const at::Tensor& expected) { return at::mse_loss(y, expected); }, adam,
      sconce::TrainOptions().clip_norm(1));
  const double first = step({x}, {target}).item<double>();
  step.wait_for_compiles();  // a program need not wait: calls run eagerly until there is a plan
  double last = first;
  for (int call = 0; call < 9; ++call) {
    last = step({x}, {target}).item<double>();
  }
  const sconce::TrainExplanation explanation = step.explain();
  std::cout << explanation.by_plan << " by plan, " << explanation.eager << " eager\n";
  for (const auto& [reason, times] : explanation.reasons) {
    std::cout << times << " times: " << reason << '\n';
  }
  EXPECT_EQ(printed.text(), "9 by plan, 1 eager\n1 times: it was recorded\n");
  EXPECT_LT(last, first);
}

}  // namespace
