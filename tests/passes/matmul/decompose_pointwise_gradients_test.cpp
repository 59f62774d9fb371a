#include "passes/matmul/decompose_pointwise_gradients.h"

#include "tests/passes/matmul/convolution_gradients.h"

#include <c10/core/GradMode.h>

namespace sconce::testing {
namespace {

TEST(DecomposePointwiseGradients, ComputesWhatLibTorchComputes) {
  const at::NoGradGuard no_grad;
  at::manual_seed(12);
  for (const Convolution& of :
       {convolution({4, 512, 2, 2}, {1024, 512, 1, 1}, 1, 0), convolution({3, 20, 14, 14}, {48, 20, 1, 1}, 1, 0),
        convolution({1, 16, 9, 9}, {40, 16, 1, 1}, 1, 0), convolution({2, 64, 1, 1}, {16, 64, 1, 1}, 1, 0),
        convolution({0, 8, 5, 4}, {6, 8, 1, 1}, 1, 0)}) {
    auto graph = graph_of(of);
    EXPECT_TRUE(decompose_pointwise_gradients(*graph));
    EXPECT_FALSE(decompose_pointwise_gradients(*graph)) << "no operator is left";
    expect_equal_gradients(std::move(graph), of);
  }
}

TEST(DecomposePointwiseGradients, TakesGradientsOfAnyStrides) {
  const at::NoGradGuard no_grad;
  at::manual_seed(13);
  Convolution of = convolution({3, 20, 14, 14}, {48, 20, 1, 1}, 1, 0);
  for (const at::Tensor& grad : {of.grad.to(at::MemoryFormat::ChannelsLast), at::ones({}).expand(of.grad.sizes())}) {
    of.grad = grad;
    auto graph = graph_of(of);
    EXPECT_TRUE(decompose_pointwise_gradients(*graph));
    const c10::IValue got = run(std::move(graph), of);
    const c10::IValue expected = run(graph_of(of), of);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::allclose(got.toTupleRef().elements()[i].toTensor(), expected.toTupleRef().elements()[i].toTensor(),
                               1e-3, 1e-3))
          << "gradient " << i;
    }
  }
}

TEST(DecomposePointwiseGradients, MultipliesPixelsOfChannelsLastImages) {
  const at::NoGradGuard no_grad;
  at::manual_seed(15);
  for (Convolution of : {convolution({3, 20, 14, 14}, {48, 20, 1, 1}, 1, 0),
                         convolution({1, 16, 9, 7}, {40, 16, 1, 1}, 1, 0), convolution({2, 16, 9, 7}, {1, 16, 1, 1}, 1, 0),
                         convolution({2, 1, 9, 7}, {3, 1, 1, 1}, 1, 0), convolution({2, 5, 1, 1}, {3, 5, 1, 1}, 1, 0)}) {
    of.input = of.input.contiguous(at::MemoryFormat::ChannelsLast);
    for (const at::Tensor& grad : {of.grad.contiguous(), of.grad.contiguous(at::MemoryFormat::ChannelsLast)}) {
      of.grad = grad;
      auto graph = graph_of(of);
      EXPECT_TRUE(decompose_pointwise_gradients(*graph)) << of.weight.sizes();
      expect_equal_gradients(std::move(graph), of);
    }
  }
}

TEST(DecomposePointwiseGradients, LeavesOtherConvolutions) {
  at::manual_seed(14);
  Convolution transposed = convolution({2, 8, 5, 4}, {6, 8, 1, 1}, 1, 0);
  transposed.input = at::randn({2, 8, 4, 5}).transpose(2, 3);
  for (const Convolution& of : {convolution({2, 8, 5, 4}, {6, 8, 3, 3}, 1, 1), convolution({2, 8, 5, 4}, {6, 8, 1, 1}, 2, 0),
                                convolution({2, 8, 5, 4}, {6, 8, 1, 1}, 1, 1), transposed}) {
    EXPECT_FALSE(decompose_pointwise_gradients(*graph_of(of))) << of.settings;
  }
}

}  // namespace
}  // namespace sconce::testing
