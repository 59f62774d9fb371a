// Packed weights beside training: LibTorch's optimizers write through `data()`, and leave elements without a gradient alone.
#include <sconce/captured_optimizer.h>
#include <sconce/module.h>
#include <sconce/train_step.h>

#include "kernels/packed/packed_weights.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace sconce {
namespace {

constexpr int64_t kFeatures = 40;
constexpr int64_t kTrained = 8;  // the output of which the loss is, no row that has compared elements
constexpr int kCalls = 6;        // enough to pack the weights

// The sum of one output, which gives gradients to one row of the weights.
const char* const kTrainedMethods = R"(
def forward(self, x):
    return torch.linear(x, self.weight, self.bias)
)";

class PackedTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(7);
    weight_ = at::randn({kFeatures, kFeatures}).requires_grad_();
    bias_ = at::randn({kFeatures}).requires_grad_();
    script_ = testing::module_of(kTrainedMethods, {{"weight", weight_}, {"bias", bias_}});
    module_ = std::make_unique<Module>(accelerate(script_, Options().compile(CompileMode::kBlocking)));
    input_ = at::randn({3, kFeatures});
  }

  at::Tensor call() { return module_->forward({input_}).toTensor(); }
  at::Tensor loss() { return call().select(1, kTrained).sum(); }
  void expect_current_weights(const char* when) {
    const at::NoGradGuard no_grad;
    for (int i = 0; i < kCalls; ++i) {
      EXPECT_TRUE(at::allclose(call(), at::linear(input_, weight_, bias_), 1e-4, 1e-4)) << when << ", call " << i;
    }
  }

  at::Tensor weight_, bias_, input_;
  torch::jit::Module script_;
  std::unique_ptr<Module> module_;
};

TEST_F(PackedTraining, SeesStepsOfLibTorchsOptimizers) {
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;
  optimizers.push_back(std::make_unique<torch::optim::SGD>(std::vector<at::Tensor>{weight_, bias_}, 0.1));
  optimizers.push_back(std::make_unique<torch::optim::Adam>(std::vector<at::Tensor>{weight_, bias_}, 0.1));
  for (const auto& optimizer : optimizers) {
    expect_current_weights("before");
    EXPECT_GT(packed_weights_in_use(), 0U);
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      loss().backward();
      expect_current_weights("before the step");
      optimizer->step();
      expect_current_weights("after the step");
    }
    // Evaluation between forward and backward, and gradients cleared after the step.
    const at::Tensor late = loss();
    optimizer->zero_grad();
    expect_current_weights("before backward");
    late.backward();
    optimizer->step();
    optimizer->zero_grad();
    expect_current_weights("after all");
  }
}

TEST_F(PackedTraining, SeesRecordedSteps) {
  torch::optim::SGD sgd(std::vector<at::Tensor>{weight_, bias_}, 0.1);
  CapturedOptimizer captured(sgd);
  TrainStep train(
      *module_, [](const at::Tensor& output, const at::Tensor&) { return output.select(1, kTrained).sum(); }, sgd);
  for (int step = 0; step < 4; ++step) {
    captured.zero_grad();
    expect_current_weights("before");
    loss().backward();
    captured.step();
    expect_current_weights("after a captured optimizer's step");
    train({input_}, {input_});
    train.wait_for_compiles();
    expect_current_weights("after a recorded step");
  }
  EXPECT_GT(train.explain().updated_by_plan, 0U);
}

// Steps of sconce's own that write one element, which versions do not count.
TEST_F(PackedTraining, SeesStepsThatWriteFewElements) {
  torch::optim::SGD sgd(std::vector<at::Tensor>{weight_, bias_}, 0.5);
  TrainStep train(
      *module_, [](const at::Tensor& output, const at::Tensor&) { return output.select(1, kTrained).sum(); }, sgd);
  CapturedOptimizer captured(sgd);
  expect_current_weights("before");
  for (int64_t step = 0; step < 30; ++step) {
    at::Tensor one = at::zeros({3, kFeatures});
    one.index_put_({1, (step * 11 + 3) % kFeatures}, 1);
    train({one}, {one});
    train.wait_for_compiles();
    expect_current_weights("after a recorded step");
    // A gradient that no graph over the weight has computed.
    at::Tensor gradient = at::zeros_like(weight_);
    gradient.index_put_({kTrained, (step * 7 + 5) % kFeatures}, 1);
    weight_.mutable_grad() = gradient;
    captured.step();
    captured.zero_grad();
    expect_current_weights("after a captured optimizer's step");
  }
  EXPECT_GT(train.explain().updated_by_plan, 0U);
}

// Training alone, of the same module and by the same plans.
TEST_F(PackedTraining, TrainsAsLibTorchDoes) {
  const at::Tensor weight = weight_.detach().clone().requires_grad_();
  const at::Tensor bias = bias_.detach().clone().requires_grad_();
  torch::optim::SGD own({weight_, bias_}, 0.05);
  torch::optim::SGD theirs({weight, bias}, 0.05);
  for (int step = 0; step < 20; ++step) {
    own.zero_grad();
    theirs.zero_grad();
    const at::Tensor got = loss().square();
    const at::Tensor expected = at::linear(input_, weight, bias).select(1, kTrained).sum().square();
    EXPECT_TRUE(at::allclose(got, expected, 1e-3, 1e-3)) << "step " << step << ": " << got << expected;
    got.backward();
    expected.backward();
    own.step();
    theirs.step();
  }
}

}  // namespace
}  // namespace sconce
