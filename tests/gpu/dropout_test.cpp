// Dropout in CUDA graphs, on a real GPU: the bits of LibTorch's operators, and the generator where they leave it.
#include "tests/gpu/need_gpu.h"
#include "tests/support/graphs.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sconce {
namespace {

const c10::Device kDropoutGpu(at::kCUDA, 0);

uint64_t replays_of_dropout(const Module& module) {
  uint64_t replays = 0;
  for (const PlanExplanation& plan : module.method("forward").explain().plans) {
    for (const RecordedExplanation& range : plan.recorded) {
      replays += range.replays;
    }
    const auto subgraphs = plan.gradients ? plan.gradients->subgraphs : std::vector<DifferentiableExplanation>();
    for (const DifferentiableExplanation& subgraph : subgraphs) {
      for (const RecordedExplanation& range : subgraph.plans.at(0).recorded) {
        replays += range.replays;
      }
    }
  }
  return replays;
}

class GpuDropoutTest : public GpuTest {
 protected:
  static uint64_t offset() { return at::globalContext().defaultGenerator(kDropoutGpu).get_offset(); }

  // Compares calls of the module, which replay recordings from the third one on, with LibTorch's operators.
  static void expect_equal_bits(const at::Tensor& x) {
    constexpr int kCalls = 6;
    Module module = accelerate(testing::module_of(R"(
def forward(self, x):
    return torch.dropout(torch.dropout(x + 1, 0.3, True) * 2, 0.5, True) + 1
)",
                                                  {}),
                               Options().compile(CompileMode::kBlocking));
    const std::string where = std::string(toString(x.scalar_type())) + " of " + std::to_string(x.numel());
    std::vector<at::Tensor> found;
    at::manual_seed(17);
    for (int call = 0; call < kCalls; ++call) {
      found.push_back(module.forward({x}).toTensor());
    }
    const uint64_t found_offset = offset();
    at::manual_seed(17);
    for (int call = 0; call < kCalls; ++call) {
      const at::Tensor expected = at::dropout(at::dropout(x + 1, 0.3, true) * 2, 0.5, true) + 1;
      EXPECT_TRUE(at::equal(found[static_cast<size_t>(call)], expected)) << where << ", call " << call;
    }
    EXPECT_EQ(found_offset, offset()) << where;
    EXPECT_GE(replays_of_dropout(module), 3U) << where;
  }
};

TEST_F(GpuDropoutTest, GivesTheBitsOfLibTorch) {
  const at::NoGradGuard no_grad;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    // LibTorch's grid has no more threads than the GPU.
    for (const int64_t elements : {1, 3, 6, 8, 255, 1000, 1028, 100001, 700002, 2100004, 2100008}) {
      expect_equal_bits(at::randn({elements}, at::TensorOptions(kDropoutGpu)).to(dtype));
    }
  }
}

TEST_F(GpuDropoutTest, DropsTheChannelsOfLibTorch) {
  Module module = accelerate(testing::module_of(R"(
def forward(self, x):
    return torch.feature_dropout(x * 0.5, 0.25, True) * 2
)",
                                                {}),
                             Options().compile(CompileMode::kBlocking));
  const at::Tensor x = at::randn({64, 4099, 3}, at::TensorOptions(kDropoutGpu)).set_requires_grad(true);
  for (uint64_t call = 0; call < 8; ++call) {
    at::manual_seed(call);
    const at::Tensor found = module.forward({x}).toTensor();
    const uint64_t found_offset = offset();
    at::manual_seed(call);
    EXPECT_TRUE(at::allclose(found, at::feature_dropout(x * 0.5, 0.25, true) * 2, 1e-6, 1e-7)) << "call " << call;
    EXPECT_EQ(found_offset, offset()) << "call " << call;
  }
  EXPECT_GE(replays_of_dropout(module), 4U);
}

TEST_F(GpuDropoutTest, GivesTheGradientsOfLibTorch) {
  Module module = accelerate(testing::module_of(R"(
def forward(self, x):
    return torch.dropout(x * 0.5, 0.25, True) * 2
)",
                                                {}),
                             Options().compile(CompileMode::kBlocking));
  const at::Tensor x = at::randn({64, 48}, at::TensorOptions(kDropoutGpu)).set_requires_grad(true);
  const at::Tensor weight = at::randn({64, 48}, at::TensorOptions(kDropoutGpu));
  for (uint64_t call = 0; call < 8; ++call) {
    at::manual_seed(call);
    const at::Tensor found = torch::autograd::grad({(module.forward({x}).toTensor() * weight).sum()}, {x})[0];
    at::manual_seed(call);
    const at::Tensor expected = torch::autograd::grad({(at::dropout(x * 0.5, 0.25, true) * 2 * weight).sum()}, {x})[0];
    EXPECT_TRUE(at::allclose(found, expected, 1e-6, 1e-7)) << "call " << call;
  }
  EXPECT_GE(replays_of_dropout(module), 4U);
}

}  // namespace
}  // namespace sconce
