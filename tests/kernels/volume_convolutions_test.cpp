// Convolutions of volumes by tiles: the results of LibTorch's operator.
#include "tests/kernels/prepared_function.h"
#include "tests/support/threads.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <sconce/sconce.h>
#include <torch/csrc/jit/api/module.h>
#include <limits>
#include <string>
#include <vector>

namespace sconce {
namespace {

using testing::list_of;
using testing::Shape;

struct VolumeCase {
  Shape input;   // N, C, D, H, W
  Shape weight;  // O, C / groups, kernel
  Shape stride;
  Shape padding;
  Shape dilation;
  int64_t groups = 1;
  bool has_bias = true;
};

// The weight is an attribute: only those are packed.
torch::jit::Module module_of(const VolumeCase& volume) {
  torch::jit::Module module("volume");
  module.register_parameter("weight", at::randn(volume.weight), false);
  module.register_parameter("bias", at::randn({volume.weight[0]}), false);
  module.define(std::string("def forward(self, x: Tensor):\n    return torch.conv3d(x, self.weight, ") +
                (volume.has_bias ? "self.bias" : "None") + ", " + list_of(volume.stride) + ", " + list_of(volume.padding) +
                ", " + list_of(volume.dilation) + ", " + std::to_string(volume.groups) + ")\n");
  return module;
}

void expect_same(const VolumeCase& volume, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  torch::jit::Module module = module_of(volume);
  const at::Tensor expected = module.forward({input}).toTensor();
  Module compiled = accelerate(module, Options());
  for (int run = 0; run < 8; ++run) {
    const at::Tensor got = compiled.forward({input}).toTensor();
    testing::expect_alike(got, expected, list_of(volume.input) + " by " + list_of(volume.weight));
    if (run == 2) {
      compiled.method("forward").wait_for_compiles();
    }
  }
}

TEST(VolumeConvolutions, AreThoseOfLibTorch) {
  at::manual_seed(0);
  const std::vector<VolumeCase> cases = {
      {{1, 3, 8, 14, 14}, {16, 3, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
      {{2, 5, 7, 9, 11}, {17, 5, 3, 3, 3}, {2, 1, 2}, {1, 0, 2}, {1, 1, 1}},
      {{1, 4, 6, 10, 9}, {8, 4, 1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1, false},
      {{1, 4, 6, 10, 9}, {8, 4, 1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
      {{3, 2, 9, 9, 9}, {33, 2, 2, 3, 2}, {1, 1, 1}, {2, 2, 2}, {2, 1, 3}},
      {{1, 1, 1, 1, 1}, {1, 1, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
      {{1, 40, 12, 40, 40}, {24, 40, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},  // slices are copied in parts
      {{1, 8, 5, 6, 7}, {8, 4, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 2},     // LibTorch's
  };
  for (const VolumeCase& volume : cases) {
    for (const int threads : {1, 3}) {
      const testing::Threads guard(threads);
      expect_same(volume, at::randn(volume.input));
    }
    expect_same(volume, at::randn(volume.input).contiguous(at::MemoryFormat::ChannelsLast3d));
  }
}

TEST(VolumeConvolutions, LeaveZerosAroundTheVolumeOutOfInfiniteWeights) {
  const VolumeCase volume = {{1, 3, 4, 5, 6}, {4, 3, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
  const at::NoGradGuard no_grad;
  torch::jit::Module module = module_of(volume);
  module.attr("weight").toTensor().index_put_({0, 0, 0, 0, 0}, at::tensor(std::numeric_limits<float>::infinity()));
  const at::Tensor input = at::rand(volume.input) + 1;
  const at::Tensor expected = module.forward({input}).toTensor();
  Module compiled = accelerate(module, Options());
  for (int run = 0; run < 8; ++run) {
    testing::expect_alike(compiled.forward({input}).toTensor(), expected, "infinite");
  }
}

TEST(VolumeConvolutions, RejectWhatLibTorchRejects) {
  const VolumeCase volume = {{1, 3, 4, 5, 6}, {4, 3, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
  const at::NoGradGuard no_grad;
  torch::jit::Module module = module_of(volume);
  Module compiled = accelerate(module, Options());
  const at::Tensor good = at::randn(volume.input);
  for (int run = 0; run < 6; ++run) {
    compiled.forward({good});
    EXPECT_THROW(compiled.forward({at::randn({1, 2, 4, 5, 6})}), c10::Error);
    EXPECT_THROW(compiled.forward({at::randn({1, 3, 0, 1, 1})}), c10::Error);
  }
}

}  // namespace
}  // namespace sconce
