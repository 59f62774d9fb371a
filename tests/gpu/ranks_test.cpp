// Two ranks, each on a GPU of its own, that exchange gradients over NCCL.
#include "tests/support/ranks.h"
#include "tests/gpu/need_gpu.h"
#include "tests/support/graphs.h"

#include <sconce/train_step.h>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/adam.h>

#include <string>
#include <vector>

namespace sconce {
namespace {

constexpr int kRanks = 2;
constexpr int kSteps = 12;

class TwoGpus : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (runtime_ != nullptr && runtime_->device_count() < kRanks) {
      GTEST_SKIP() << "there is one GPU, and NCCL wants one for each rank";
    }
  }
};

torch::jit::Module layers_on(const c10::Device& device) {
  at::manual_seed(3);
  const auto parameter = [&](const at::Tensor& values) { return values.to(device).set_requires_grad(true); };
  return testing::module_of(R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a, self.b))
    return torch.linear(torch.tanh(torch.linear(h, self.c)) + h, self.d)
)",
                            {{"a", parameter(at::randn({256, 64}) * 0.1)},
                             {"b", parameter(at::zeros({256}))},
                             {"c", parameter(at::randn({256, 256}) * 0.05)},
                             {"d", parameter(at::randn({8, 256}) * 0.05)}});
}

std::vector<at::Tensor> parameters_of(const torch::jit::Module& module) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : module.parameters()) {
    parameters.push_back(parameter);
  }
  return parameters;
}

// Trains on the rank's part of each batch. Returns the parameters.
std::vector<at::Tensor> train(const c10::Device& device, int part, int parts, const TrainOptions& options,
                              uint64_t* updated_by_plan = nullptr) {
  const torch::jit::Module module = layers_on(device);
  torch::optim::Adam adam(parameters_of(module), torch::optim::AdamOptions(0.01));
  TrainStep step(
      accelerate(module, Options().compile(CompileMode::kBlocking)),
      [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); }, adam, options);
  for (int i = 0; i < kSteps; ++i) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(i) + 1);
    const at::Tensor x = at::randn({64, 64}, generator).chunk(parts)[static_cast<size_t>(part)];
    const at::Tensor target = at::randn({64, 8}, generator).chunk(parts)[static_cast<size_t>(part)];
    step({x.to(device)}, {target.to(device)});
  }
  if (updated_by_plan != nullptr) {
    *updated_by_plan = step.explain().updated_by_plan;
  }
  step.unshard_optimizer();
  std::vector<at::Tensor> found;
  for (const at::Tensor& parameter : parameters_of(module)) {
    found.push_back(parameter.detach().cpu());
  }
  return found;
}

TEST_F(TwoGpus, TrainAsOneProcess) {
  const std::vector<at::Tensor> alone = train(at::kCPU, 0, 1, TrainOptions());
  for (const TrainOptions& options : {TrainOptions(), TrainOptions().shard_optimizer(true)}) {
    std::vector<std::vector<at::Tensor>> found(kRanks);
    std::vector<uint64_t> updated_by_plan(kRanks);
    testing::run_all_ranks(kRanks, [&](const DataParallel& ranks) {
      const auto rank = static_cast<size_t>(ranks.rank());
      const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(rank));
      const c10::DeviceGuard guard(device);
      found[rank] = train(device, ranks.rank(), kRanks, TrainOptions(options).data_parallel(ranks), &updated_by_plan[rank]);
    });
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_TRUE(at::equal(found[0].at(i), found[1].at(i))) << "parameter " << i;
      EXPECT_TRUE(at::allclose(found[0].at(i), alone[i], 1e-3, 1e-4)) << "parameter " << i;
    }
    EXPECT_EQ(updated_by_plan, std::vector<uint64_t>(kRanks, kSteps - 1));
  }
}

}  // namespace
}  // namespace sconce
