#include "passes/matmul/decompose_convolution_gradients.h"

#include "load/compile_op_row.h"
#include "lower/lower.h"
#include "passes/simplify/propagate_constants.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace sconce {
namespace {

struct Convolution {
  at::Tensor grad, input, weight;
  std::string settings;  // stride, padding and dilation
};

Convolution convolution(c10::IntArrayRef input, c10::IntArrayRef weight, int64_t stride, int64_t padding) {
  const at::Tensor x = at::randn(input);
  const at::Tensor w = at::randn(weight) * 0.05;
  const auto both = [](int64_t n) { return "[" + std::to_string(n) + ", " + std::to_string(n) + "]"; };
  return {at::randn_like(at::conv2d(x, w, {}, stride, padding)), x, w, both(stride) + ", " + both(padding) + ", [1, 1]"};
}

std::unique_ptr<Graph> graph_of(const Convolution& of) {
  auto graph = compile_function("gradients",
                                "def f(grad: Tensor, input: Tensor, weight: Tensor):\n"
                                "    return torch.convolution_backward(grad, input, weight, [weight.size(0)], " +
                                    of.settings + ", False, [0, 0], 1, [True, True, True])\n");
  const std::vector<at::Tensor> tensors = {of.grad, of.input, of.weight};
  for (size_t i = 0; i < tensors.size(); ++i) {
    graph->inputs()[i]->set_facts(facts_of(tensors[i]));
  }
  propagate_constants(*graph);
  return graph;
}

c10::IValue run(std::unique_ptr<Graph> graph, const Convolution& of) {
  torch::jit::Stack stack = {of.grad, of.input, of.weight};
  const auto plan = lower(std::move(graph));
  EXPECT_TRUE(plan) << plan.refusal().reason;
  run_plan(**plan, stack, AutogradUse::kNone);
  return stack.at(0);
}

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
    const c10::IValue got = run(std::move(graph), of);
    const c10::IValue expected = run(graph_of(of), of);
    for (size_t i = 0; i < 3; ++i) {
      const at::Tensor own = got.toTupleRef().elements()[i].toTensor();
      const at::Tensor theirs = expected.toTupleRef().elements()[i].toTensor();
      EXPECT_TRUE(at::allclose(own, theirs, 1e-3, 1e-3)) << of.weight.sizes() << ", gradient " << i;
      EXPECT_EQ(own.strides(), theirs.strides()) << of.weight.sizes() << ", gradient " << i;
    }
  }
}

}  // namespace
}  // namespace sconce
