// Graphs with many nodes of one kind compile in the memory of one with few.
#include <sconce/module.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <string>

namespace sconce {
namespace {

TEST(LargeGraphs, ReadManyAttributesOfOneModule) {
  constexpr int kCount = 100;
  torch::jit::Module module("large");
  std::string source = "def forward(self, x):\n";
  for (int i = 0; i < kCount; ++i) {
    const std::string name = "bias" + std::to_string(i);
    module.register_parameter(name, at::ones({2}), false);
    source += "    x = x + self." + name + "\n";
  }
  module.define(source + "    return x\n");
  EXPECT_TRUE(at::equal(accelerate(module).forward({at::zeros({2})}).toTensor(), at::full({2}, kCount)));
}

}  // namespace
}  // namespace sconce
