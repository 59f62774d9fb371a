// Ranks that train on the simulated GPU: the parameters of LibTorch's loop on the CPU with the whole batch.
#include "tests/cuda_graphs/module_on_both.h"
#include "tests/support/graphs.h"
#include "tests/support/ranks.h"

#include <sconce/train_step.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRanks = 2;
constexpr int kSteps = 8;

constexpr const char* kLayers = R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a, self.b))
    h = torch.tanh(torch.linear(h, self.c)) + h
    return torch.linear(h, self.d)
)";
constexpr const char* kNormalizedLayers = R"(
def forward(self, x):
    h = torch.batch_norm(torch.linear(x, self.a), self.b + 1, self.b, self.mean, self.var, True, 0.1, 1e-5, True)
    h = torch.tanh(torch.linear(torch.tanh(h), self.c)) + h
    return torch.linear(h, self.d)
)";

torch::jit::Module three_layers(const char* forward) {
  at::manual_seed(3);
  const auto parameter = [](const at::Tensor& values) { return values.clone().set_requires_grad(true); };
  return module_of(forward, {{"a", parameter(at::randn({16, 8}) * 0.3)},
                             {"b", parameter(at::zeros({16}))},
                             {"c", parameter(at::randn({16, 16}) * 0.2)},
                             {"d", parameter(at::randn({4, 16}) * 0.2)},
                             {"mean", at::zeros({16})},
                             {"var", at::ones({16})}});
}

std::unique_ptr<torch::optim::Optimizer> adam_of(const torch::jit::Module& module) {
  return std::make_unique<torch::optim::Adam>(parameters_of(module), torch::optim::AdamOptions(0.01));
}

struct Batch {
  at::Tensor x;
  at::Tensor target;
};
std::vector<Batch> batches() {
  at::manual_seed(7);
  std::vector<Batch> all;
  for (int step = 0; step < kSteps; ++step) {
    all.push_back({at::randn({6 * kRanks, 8}), at::randn({6 * kRanks, 4})});
  }
  return all;
}

at::Tensor loss_of(const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); }

std::vector<at::Tensor> trained_on_cpu(const char* forward, const TrainOptions& options) {
  torch::jit::Module module = three_layers(forward);
  const auto optimizer = adam_of(module);
  for (const Batch& batch : batches()) {
    optimizer->zero_grad();
    loss_of(module.forward({batch.x}).toTensor(), batch.target).backward();
    if (options.clip_norm()) {
      torch::nn::utils::clip_grad_norm_(parameters_of(module), *options.clip_norm());
    }
    optimizer->step();
  }
  return parameters_of(module);
}

class RanksOnGpu : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), IsEmpty()); }
  SimulatedGpu gpu_;
};

TEST_F(RanksOnGpu, TrainAsOneProcess) {
  for (const auto& [name, forward, options] :
       {std::tuple("plain", kLayers, TrainOptions()), std::tuple("clipped", kLayers, TrainOptions().clip_norm(0.1)),
        std::tuple("sharded", kLayers, TrainOptions().shard_optimizer(true)),
        std::tuple("kept", kLayers, TrainOptions().keep_gradients(true)),
        std::tuple("batch norm", kNormalizedLayers, TrainOptions().synchronize_batch_norm(true))}) {
    SCOPED_TRACE(name);
    std::vector<torch::jit::Module> modules;
    std::vector<std::vector<Batch>> parts(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      modules.push_back(copy_on_gpu(three_layers(forward)));
      for (const Batch& whole : batches()) {
        parts[rank].push_back(
            {gpu_.tensor(whole.x.chunk(kRanks)[rank].clone()), gpu_.tensor(whole.target.chunk(kRanks)[rank].clone())});
      }
    }
    TrainExplanation explanation;
    run_all_ranks(kRanks,
                  [&](const DataParallel& ranks) {
                    torch::jit::Module& module = modules[static_cast<size_t>(ranks.rank())];
                    const auto optimizer = adam_of(module);
                    TrainStep step(accelerate(module, Options().compile(CompileMode::kBlocking)), loss_of, *optimizer,
                                   TrainOptions(options).data_parallel(ranks));
                    for (const Batch& part : parts[static_cast<size_t>(ranks.rank())]) {
                      step({part.x}, {part.target});
                    }
                    if (ranks.rank() == 0) {
                      explanation = step.explain();
                    }
                    step.unshard_optimizer();
                  },
                  {.timeout = std::chrono::seconds(60), .bucket_bytes = 1024, .first_bucket_bytes = 256});
    const std::vector<at::Tensor> expected = trained_on_cpu(forward, options);
    for (const torch::jit::Module& module : modules) {
      const std::vector<at::Tensor> found = parameters_of(module);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::allclose(gpu_.values(found[i]), expected[i], 1e-4, 1e-5)) << "parameter " << i;
      }
    }
    EXPECT_EQ(explanation.by_plan, uint64_t{kSteps - 1});
    if (!options.keep_gradients()) {
      EXPECT_EQ(explanation.updated_by_plan, uint64_t{kSteps - 1});
      EXPECT_EQ(explanation.reductions.size(), 3U);
      EXPECT_GT(counts_of(explanation.plans.at(0)).own.replays, 0U);
    }
  }
}

TEST_F(RanksOnGpu, ExchangeTensorsOfCpusToo) {
  run_all_ranks(kRanks, [&](const DataParallel& ranks) {
    const at::Tensor on_cpu = at::ones({3}) * (ranks.rank() + 1);
    const at::Tensor on_gpu = gpu_.tensor(on_cpu * 10);
    ranks.sum(on_gpu);
    ranks.sum(on_cpu);
    EXPECT_TRUE(gpu_.values(on_gpu).eq(30).all().item<bool>());
    EXPECT_TRUE(on_cpu.eq(3).all().item<bool>());
  });
}

}  // namespace
}  // namespace sconce::testing
