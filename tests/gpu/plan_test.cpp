// Plans of required passes on a GPU: the same values as on the CPU.
#include "tests/gpu/need_gpu.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <thread>
#include <vector>

namespace sconce {
namespace {

torch::jit::Module make_network() {
  torch::jit::Module network("Network");
  network.register_parameter("weight", at::randn({64, 32}) * 0.1, false);
  network.register_parameter("bias", at::randn({64}) * 0.1, false);
  network.register_buffer("steps", at::zeros({}, at::kLong));
  network.define(R"(
    def forward(self, x, rounds: int):
        y = torch.relu(torch.linear(x, self.weight, self.bias))
        parts = [y]
        for i in range(rounds):
            y = torch.softmax(y * (i + 1), dim=-1) + parts[-1]
            if i % 2 == 0:
                y = y.clone()
                y[:, 0] += 1
            parts.append(y)
        self.steps.add_(1)
        return torch.cat(parts, dim=1), y.mean(dim=0), self.steps.item()
  )");
  return network;
}

class GpuPlanTest : public GpuTest {};

TEST_F(GpuPlanTest, GivesTheValuesOfTheCpu) {
  const torch::jit::Module network = make_network();
  const sconce::Module on_cpu = accelerate(network.deepcopy(), Options());
  sconce::Module on_gpu = accelerate(network.deepcopy(), Options());
  on_gpu.to(c10::Device(at::kCUDA, 0));
  for (int64_t rounds : {0, 1, 5}) {
    const at::Tensor x = at::rand({16, 32});
    const auto expected = on_cpu.forward({x, rounds}).toTuple();
    const auto actual = on_gpu.forward({x.to(at::kCUDA), rounds}).toTuple();
    for (size_t i : {0, 1}) {
      const at::Tensor value = actual->elements()[i].toTensor();
      EXPECT_TRUE(value.is_cuda());
      EXPECT_TRUE(at::allclose(value.cpu(), expected->elements()[i].toTensor(), 1e-4, 1e-5)) << "output " << i;
    }
    EXPECT_EQ(actual->elements()[2].toScalar().toLong(), expected->elements()[2].toScalar().toLong());
  }
}

TEST_F(GpuPlanTest, GivesTheGradientsOfTheCpu) {
  torch::jit::Module network("Network");
  network.register_parameter("weight", at::randn({8, 8}), false);
  network.define("def forward(self, x):\n    return torch.tanh(torch.matmul(x, self.weight)).pow(2).sum()\n");
  const at::Tensor x = at::rand({4, 8});
  const auto gradient_on = [&](c10::Device device) {
    sconce::Module module = accelerate(network.deepcopy(), Options());
    module.to(device);
    module.parameters().at(0).requires_grad_();
    module.forward({x.to(device)}).toTensor().backward();
    return module.parameters().at(0).grad().cpu();
  };
  EXPECT_TRUE(at::allclose(gradient_on(at::kCUDA), gradient_on(at::kCPU), 1e-4, 1e-5));
}

TEST_F(GpuPlanTest, RunsInManyThreadsAtOnce) {
  sconce::Module module = accelerate(make_network(), Options());
  module.to(c10::Device(at::kCUDA, 0));
  const at::Tensor x = at::rand({16, 32}, at::kCUDA);
  const int64_t rounds = 3;
  const at::Tensor expected = module.forward({x, rounds}).toTuple()->elements()[1].toTensor();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const at::Tensor value = module.forward({x, rounds}).toTuple()->elements()[1].toTensor();
        EXPECT_TRUE(at::allclose(value, expected));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace sconce
