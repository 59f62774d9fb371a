// Graphs of gradients of convolutions, for tests of the passes that replace them.
#pragma once

#include "load/compile_op_row.h"
#include "lower/lower.h"
#include "passes/simplify/propagate_constants.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace sconce::testing {

struct Convolution {
  at::Tensor grad, input, weight;
  std::string settings;  // stride, padding and dilation
};

inline Convolution convolution(c10::IntArrayRef input, c10::IntArrayRef weight, int64_t stride, int64_t padding) {
  const at::Tensor x = at::randn(input);
  const at::Tensor w = at::randn(weight) * 0.05;
  const auto both = [](int64_t n) { return "[" + std::to_string(n) + ", " + std::to_string(n) + "]"; };
  return {at::randn_like(at::conv2d(x, w, {}, stride, padding)), x, w, both(stride) + ", " + both(padding) + ", [1, 1]"};
}

inline std::unique_ptr<Graph> graph_of(const Convolution& of) {
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

inline c10::IValue run(std::unique_ptr<Graph> graph, const Convolution& of) {
  torch::jit::Stack stack = {of.grad, of.input, of.weight};
  const auto plan = lower(std::move(graph));
  EXPECT_TRUE(plan) << plan.refusal().reason;
  run_plan(**plan, stack, AutogradUse::kNone);
  return stack.at(0);
}

// The strides of sizes of 1 mean nothing. LibTorch's loops set them one way or the other, and the number of threads decides
// which loops run.
inline std::vector<int64_t> strides_that_count(const at::Tensor& tensor) {
  std::vector<int64_t> strides;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    strides.push_back(tensor.size(dim) == 1 ? 0 : tensor.stride(dim));
  }
  return strides;
}

// Compares the three gradients with those of the operator.
inline void expect_equal_gradients(std::unique_ptr<Graph> graph, const Convolution& of) {
  const c10::IValue got = run(std::move(graph), of);
  const c10::IValue expected = run(graph_of(of), of);
  for (size_t i = 0; i < 3; ++i) {
    const at::Tensor own = got.toTupleRef().elements()[i].toTensor();
    const at::Tensor theirs = expected.toTupleRef().elements()[i].toTensor();
    EXPECT_TRUE(at::allclose(own, theirs, 1e-3, 1e-3)) << of.weight.sizes() << ", gradient " << i;
    EXPECT_EQ(strides_that_count(own), strides_that_count(theirs)) << of.weight.sizes() << ", gradient " << i;
  }
}

}  // namespace sconce::testing
