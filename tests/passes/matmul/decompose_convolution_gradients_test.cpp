#include "passes/matmul/decompose_convolution_gradients.h"

#include "tests/passes/matmul/convolution_gradients.h"

#include <c10/core/GradMode.h>

namespace sconce::testing {
namespace {

TEST(DecomposeConvolutionGradients, ComputesWhatLibTorchComputes) {
  const at::NoGradGuard no_grad;
  at::manual_seed(11);
  for (const Convolution& of :
       {convolution({4, 512, 2, 2}, {1024, 512, 1, 1}, 1, 0), convolution({1, 128, 4, 4}, {512, 128, 3, 3}, 1, 1),
        convolution({2, 512, 5, 4}, {512, 512, 3, 3}, 2, 1), convolution({2, 8, 5, 4}, {6, 8, 3, 3}, 1, 1),
        convolution({2, 1024, 4, 4}, {1024, 1024, 1, 1}, 2, 0)}) {
    auto graph = graph_of(of);
    EXPECT_TRUE(decompose_convolution_gradients(*graph));
    EXPECT_FALSE(decompose_convolution_gradients(*graph)) << "what is left to the operator stays";
    expect_equal_gradients(std::move(graph), of);
  }
}

}  // namespace
}  // namespace sconce::testing
