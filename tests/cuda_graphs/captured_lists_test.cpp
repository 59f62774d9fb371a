// Launches that follow each other in a capture are one launch, where they may run at once.
#include "tests/cuda_graphs/module_on_both.h"
#include "tests/support/graphs.h"

#include <sconce/train_step.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::IsEmpty;

// A step of many parameters, of sizes that vectors do not divide, by Adam.
TEST(CapturedLists, UpdateTheParametersOfAStepByOneLaunch) {
  constexpr int64_t kLayers = 12;
  at::manual_seed(5);
  Attributes attributes;
  std::string forward = "def forward(self, x):\n";
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string name = "w" + std::to_string(i);
    attributes.emplace_back(name, (at::randn({7, 7}) * 0.4).set_requires_grad(true));
    attributes.emplace_back("b" + std::to_string(i), at::zeros({7 + (i == kLayers - 1 ? 2 : 0)}).set_requires_grad(true));
    forward += "    x = torch.tanh(torch.mm(x, self." + name + ") + self.b" + std::to_string(i) +
               (i == kLayers - 1 ? "[:7])\n" : ")\n");
  }
  const torch::jit::Module theirs = module_of((forward + "    return x\n").c_str(), attributes);
  SimulatedGpu gpu;
  const torch::jit::Module ours = copy_on_gpu(theirs);
  const torch::optim::AdamOptions options(0.01);
  torch::optim::Adam our_optimizer(parameters_of(ours), options);
  torch::optim::Adam their_optimizer(parameters_of(theirs), options);
  const auto loss_of = [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); };
  TrainStep step(accelerate(ours, Options().compile(CompileMode::kBlocking)), loss_of, our_optimizer);
  torch::jit::Module reference = theirs;
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = at::randn({5, 7});
    const at::Tensor target = at::randn({5, 7}).tanh();
    static_cast<void>(step({gpu.tensor(x)}, {gpu.tensor(target)}));
    their_optimizer.zero_grad();
    loss_of(reference.forward({x}).toTensor(), target).backward();
    their_optimizer.step();
    const auto pairs = std::pair(parameters_of(ours), parameters_of(theirs));
    for (size_t k = 0; k < pairs.first.size(); ++k) {
      EXPECT_TRUE(at::allclose(gpu.values(pairs.first[k]), pairs.second[k], 1e-4, 1e-5)) << "step " << i << ", tensor " << k;
    }
  }
  // All but the first of the updates have joined it.
  EXPECT_EQ(gpu.driver_calls("set_kernel_node"), 2 * kLayers - 1);
  EXPECT_THAT(gpu.driver().misuse(), IsEmpty());
}

// Writes in place that depend on each other stay apart; those that do not are together.
TEST(CapturedLists, KeepTheOrderOfWhatDependsOnEachOther) {
  const std::string forward = R"(
def forward(self, x):
    a = torch.mm(x, self.v)
    b = torch.mm(a, self.v)
    c = torch.mm(b, self.v)
    a.mul_(2.0)
    b.mul_(2.0)
    b.add_(a)
    c.mul_(2.0)
    c.add_(b)
    a.mul_(2.0)
    return torch.mm(a, self.v), torch.mm(b, self.v), torch.mm(c, self.v)
)";
  SimulatedGpu gpu;
  at::manual_seed(5);
  ModuleOnBoth both(gpu, forward, {{"v", at::randn({8, 8}) * 0.4}}, Options().compile(CompileMode::kBlocking));
  for (int i = 0; i < 5; ++i) {
    both.forward({at::randn({3, 8})}, "call " + std::to_string(i));
  }
  EXPECT_THAT(gpu.driver().misuse(), IsEmpty());
}

}  // namespace
}  // namespace sconce::testing
