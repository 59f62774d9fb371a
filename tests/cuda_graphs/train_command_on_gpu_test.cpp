// What `sconce train` does on the simulated GPU: losses and metrics of the same training on the CPU. In float64, because
// LBFGS enlarges rounding errors.
#include "tests/simulated_gpu/simulated_gpu.h"
#include "tools/sconce/train/loss.h"
#include "tools/sconce/train/training.h"

#include <sconce/module.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

class Points final : public cli::DataSource {
 public:
  int64_t examples() const override { return points_.size(0); }
  size_t inputs() const override { return 1; }
  size_t targets() const override { return 1; }
  cli::TrainBatch read(const at::Tensor& numbers) const override {
    return {{points_.index_select(0, numbers)}, {classes_.index_select(0, numbers)}};
  }

 private:
  const at::Tensor points_ = at::arange(160).reshape({40, 4}).remainder(7).to(at::kDouble) / 7;
  const at::Tensor classes_ = points_.sum(1).gt(1.7).to(at::kLong);
};

torch::jit::Module classifier(c10::Device device) {
  torch::jit::Module module("Classifier");
  const at::Tensor ramp = at::arange(32).reshape({8, 4}).to(at::kDouble) / 32;
  for (const auto& [name, value] : {std::pair("a", ramp.sin()), std::pair("b", ramp.reshape({4, 8}).cos().slice(0, 0, 2))}) {
    module.register_parameter(name, value.to(device).set_requires_grad(true), false);
  }
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define("def forward(self, x):\n    return torch.linear(torch.tanh(torch.linear(x, self.a)), self.b)\n");
  return module;
}

cli::Training training_on(c10::Device device, const std::string& optimizer) {
  const cli::TrainSettings settings{
      .loss = {"cross_entropy"}, .optimizer = optimizer, .epochs = 8, .batch = 40, .lr = 0.05, .metric = {"accuracy", "f1"}};
  return cli::Training(accelerate(classifier(device), Options().compile(CompileMode::kBlocking)), std::make_shared<Points>(),
                       settings, cli::sum_of_losses(cli::loss_parts(settings.loss)));
}

void take_steps(cli::Training& training, size_t steps) {
  for (size_t step = 0; step < steps; ++step) {
    training.step([] { return cli::Training::Wishes(); });
  }
}

TEST(TrainCommandOnGpu, TrainsAsOnTheCpu) {
  SimulatedGpu gpu;
  const Points data;
  for (const char* optimizer : {"adam", "lbfgs"}) {
    SCOPED_TRACE(optimizer);
    cli::Training on_cpu = training_on(at::kCPU, optimizer);
    on_cpu.rehearse(&data);
    take_steps(on_cpu, 8);
    const cli::Evaluation expected = on_cpu.evaluate(data);

    cli::Training on_gpu = training_on(c10::Device(at::kCUDA, 0), optimizer);
    on_gpu.rehearse(&data);
    take_steps(on_gpu, 3);
    // Another training goes on from the checkpoint, whose tensors are on the CPU.
    const cli::Checkpoint checkpoint = on_gpu.checkpoint();
    for (const auto& entry : checkpoint.state.module) {
      EXPECT_TRUE(!entry.value().isTensor() || entry.value().toTensor().is_cpu());
    }
    cli::Training resumed = training_on(c10::Device(at::kCUDA, 0), optimizer);
    resumed.go_on_from(checkpoint);
    take_steps(resumed, 5);
    const cli::Evaluation found = resumed.evaluate(data);
    EXPECT_NEAR(found.loss(), expected.loss(), 1e-4);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(found.metrics()[i].second, expected.metrics()[i].second, 1e-6);
    }
    EXPECT_EQ(resumed.samples(data).samples.size(), 16U);
    EXPECT_TRUE(resumed.samples(data).samples.front().results.front().is_cpu());
  }
}

}  // namespace
}  // namespace sconce::testing
