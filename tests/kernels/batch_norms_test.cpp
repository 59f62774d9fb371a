// Batch norms that train, and their gradients, as prepared plans compute them: the results of LibTorch.
#include "tests/kernels/prepared_function.h"
#include "tests/support/threads.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace sconce {
namespace {

using testing::expect_alike;
using testing::optional;
using testing::prepared_function;
using testing::Shape;

std::unique_ptr<Plan> plan_of_norm() {
  return prepared_function(
      "def f(x: Tensor, w: Optional[Tensor], b: Optional[Tensor], mean: Optional[Tensor], var: Optional[Tensor]):\n"
      "    return torch.native_batch_norm(x, w, b, mean, var, True, 0.1, 1e-5)\n");
}

std::unique_ptr<Plan> plan_of_norm_gradients() {
  return prepared_function(
      "def f(grad: Tensor, x: Tensor, w: Optional[Tensor], mean: Tensor, deviation: Tensor):\n"
      "    return torch.native_batch_norm_backward(grad, x, w, None, None, mean, deviation, True, 1e-5, "
      "[True, True, True])\n");
}

struct NormTensors {
  at::Tensor weight, bias, mean, variance;
};

void expect_same(const at::Tensor& input, const NormTensors& norm, const std::string& what) {
  static const auto& forward = *plan_of_norm().release();
  static const auto& backward = *plan_of_norm_gradients().release();
  const auto copy = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; };
  const NormTensors own = {norm.weight, norm.bias, copy(norm.mean), copy(norm.variance)};
  const NormTensors theirs = {norm.weight, norm.bias, copy(norm.mean), copy(norm.variance)};
  for (int run = 0; run < 2; ++run) {
    const c10::IValue results =
        testing::run(forward, {input, optional(own.weight), optional(own.bias), optional(own.mean), optional(own.variance)});
    const auto [out, mean, deviation] =
        at::native_batch_norm(input, theirs.weight, theirs.bias, theirs.mean, theirs.variance, true, 0.1, 1e-5);
    const auto& got = results.toTupleRef().elements();
    expect_alike(got[0].toTensor(), out, what + ", result");
    expect_alike(got[1].toTensor(), mean, what + ", mean");
    expect_alike(got[2].toTensor(), deviation, what + ", deviation");
    if (own.mean.defined()) {
      expect_alike(own.mean, theirs.mean, what + ", running mean");
      expect_alike(own.variance, theirs.variance, what + ", running variance");
    }
    const at::Tensor gradient = at::randn_like(input);
    const c10::IValue flows = testing::run(backward, {gradient, input, optional(norm.weight), mean, deviation});
    const auto [of_input, of_weight, of_bias] = at::native_batch_norm_backward(gradient, input, norm.weight, {}, {}, mean,
                                                                               deviation, true, 1e-5, {true, true, true});
    const auto& gradients = flows.toTupleRef().elements();
    expect_alike(gradients[0].toTensor(), of_input, what + ", gradient of the input");
    expect_alike(gradients[1].toTensor(), of_weight, what + ", gradient of the weight");
    expect_alike(gradients[2].toTensor(), of_bias, what + ", gradient of the bias");
  }
}

const std::vector<Shape>& shapes_of_inputs() {
  static const std::vector<Shape> all = {{4, 5, 3, 3},   {1, 3, 7, 9},     {2, 20, 33},    {3, 4, 2, 3, 5}, {2, 3, 40, 70},
                                         {16, 40, 2, 2}, {8, 6, 1, 1},     {2, 1, 5, 5},   {1, 2, 1, 1},    {3, 7, 16, 16},
                                         {2, 3, 5, 13},  {1, 2, 128, 129}, {5, 4, 11, 12}, {6, 8}};
  return all;
}

TEST(BatchNormKernels, ComputeWhatLibTorchComputes) {
  const at::NoGradGuard no_grad;
  at::manual_seed(8);
  for (const int count : {1, 2}) {
    const testing::Threads scope(count);
    for (const Shape& shape : shapes_of_inputs()) {
      const int64_t channels = shape[1];
      const std::string what = c10::str(c10::IntArrayRef(shape));
      const NormTensors all = {at::randn({channels}), at::randn({channels}), at::randn({channels}), at::rand({channels})};
      const at::Tensor input = at::randn(shape) * 3 + 1;
      expect_same(input, all, what);
      expect_same(input, {}, what + ", nothing but the input");
      expect_same(input, {all.weight, {}, all.mean, all.variance}, what + ", no bias");
      if (shape.size() == 4) {
        expect_same(input.contiguous(at::MemoryFormat::ChannelsLast), all, what + ", channels-last");
        expect_same(input.transpose(2, 3), all, what + ", transposed");
      }
    }
  }
}

// A large mean, beside which elements hardly differ, and the sums of many pixels.
TEST(BatchNormKernels, RoundLittle) {
  const at::NoGradGuard no_grad;
  at::manual_seed(9);
  const at::Tensor input = at::randn({2, 3, 300, 301}) + at::tensor({0.0F, 100.0F, 1000.0F}).view({1, 3, 1, 1});
  const auto [out, mean, deviation] = at::native_batch_norm(input.to(at::kDouble), {}, {}, {}, {}, true, 0.1, 1e-5);
  const c10::IValue results = testing::run(*plan_of_norm(), {input, {}, {}, {}, {}});
  const auto& got = results.toTupleRef().elements();
  EXPECT_LT((got[1].toTensor() - mean).abs().max().item<double>(), 1e-4);
  EXPECT_LT((got[2].toTensor() / deviation - 1).abs().max().item<double>(), 1e-6);
}

TEST(BatchNormKernels, TakeInfinitiesAndNaN) {
  const at::NoGradGuard no_grad;
  at::manual_seed(10);
  for (const Shape& shape : {Shape{2, 4, 9, 9}, Shape{2, 4, 20, 20}}) {
    const at::Tensor input = at::randn(shape);
    input[0][0][0][0] = std::numeric_limits<float>::infinity();
    input[1][1][8][8] = std::numeric_limits<float>::quiet_NaN();
    input[0][2] = 0;
    input[1][2] = 0;  // no variance
    expect_same(input, {at::ones({4}), at::zeros({4}), at::zeros({4}), at::ones({4})}, "special values");
  }
}

}  // namespace
}  // namespace sconce
