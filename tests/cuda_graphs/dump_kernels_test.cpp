// What `sconce dump --format kernel` shows of kernels on a GPU.
#include "tests/simulated_gpu/simulated_gpu.h"
#include "tools/sconce/commands/dump_calls.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;

TEST(DumpedKernels, OfAGpuAreCudaText) {
  SimulatedGpu gpu;
  torch::jit::Module network("Network");
  network.define("def forward(self, x):\n    return torch.sigmoid(x * 2) + x\n");
  const Module module = accelerate(network, Options().compile(CompileMode::kBlocking));
  const c10::Device device(c10::kCUDA, 0);
  const auto kernels = cli::kernels_of(module, {.method = "forward"}, {gpu.tensor(at::randn({4, 8}))}, device);
  ASSERT_FALSE(kernels.empty());
  ASSERT_NE(kernels.back().device_kernel, nullptr);
  EXPECT_NE(kernels.back().device_kernel->kernel(), nullptr) << kernels.back().device_kernel->refusal();
  const sconce::Json json = cli::to_json(kernels.back(), 3);
  EXPECT_EQ(json["first_use"], "a call without gradients");
  EXPECT_THAT(json["program"].get<std::string>(), HasSubstr("load.Float"));
  EXPECT_THAT(json["cuda"].get<std::string>(), HasSubstr("__global__"));
  EXPECT_THAT(json["text"].get<std::string>(), HasSubstr("# kernel 3 of a GPU\n# first used in a call without gradients"));
  EXPECT_THAT(json["text"].get<std::string>(), HasSubstr("# CUDA C++\ntypedef int Index;"));
}

}  // namespace
}  // namespace sconce::testing
