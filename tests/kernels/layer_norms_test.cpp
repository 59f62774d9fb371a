// Layer norms that keep what gradients read, and these gradients, as prepared plans compute them: the results of LibTorch.
#include "tests/kernels/prepared_function.h"
#include "tests/support/threads.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace sconce {
namespace {

using testing::expect_alike;
using testing::list_of;
using testing::optional;
using testing::plain_function;
using testing::prepared_function;
using testing::Shape;

struct LayerNormCase {
  Shape shape;
  Shape normalized;
};

void expect_same_norms(const at::Tensor& input, const Shape& normalized, const at::Tensor& weight, const at::Tensor& bias,
                       const std::string& what) {
  const std::string shape = list_of(normalized);
  const std::string forward =
      "def f(x: Tensor, w: Optional[Tensor], b: Optional[Tensor]):\n"
      "    return torch.native_layer_norm(x, " +
      shape + ", w, b, 1e-5)\n";
  // A gradient that is not asked for is undefined, and nothing may use it.
  const bool has_weight = weight.defined();
  const bool has_bias = bias.defined();
  const std::string mask = std::string("[True, ") + (has_weight ? "True, " : "False, ") + (has_bias ? "True]" : "False]");
  const std::string backward =
      "def f(grad: Tensor, x: Tensor, mean: Tensor, deviation: Tensor, w: Optional[Tensor], b: Optional[Tensor]):\n"
      "    of_x, of_w, of_b = torch.native_layer_norm_backward(grad, x, " +
      shape + ", mean, deviation, w, b, " + mask + ")\n    return (of_x" + (has_weight ? ", of_w" : "") +
      (has_bias ? ", of_b" : "") + ",)\n";
  const auto forward_plan = prepared_function(forward);
  const auto backward_plan = prepared_function(backward);
  const c10::IValue expected = testing::run(*plain_function(forward), {input, optional(weight), optional(bias)});
  const auto& norm = expected.toTupleRef().elements();
  const at::Tensor gradient = at::randn_like(input);
  const torch::jit::Stack flows = {gradient, input, norm[1], norm[2], optional(weight), optional(bias)};
  const c10::IValue expected_flows = testing::run(*plain_function(backward), flows);
  for (int run = 0; run < 2; ++run) {
    const c10::IValue got = testing::run(*forward_plan, {input, optional(weight), optional(bias)});
    for (size_t i = 0; i < norm.size(); ++i) {
      expect_alike(got.toTupleRef().elements()[i].toTensor(), norm[i].toTensor(), what + ", result " + std::to_string(i));
    }
    const c10::IValue got_flows = testing::run(*backward_plan, flows);
    for (size_t i = 0; i < expected_flows.toTupleRef().elements().size(); ++i) {
      expect_alike(got_flows.toTupleRef().elements()[i].toTensor(), expected_flows.toTupleRef().elements()[i].toTensor(),
                   what + ", gradient " + std::to_string(i));
    }
  }
}

TEST(LayerNormKernels, ComputeWhatLibTorchComputes) {
  const at::NoGradGuard no_grad;
  at::manual_seed(14);
  for (const int count : {1, 2}) {
    const testing::Threads scope(count);
    for (const LayerNormCase& of : std::vector<LayerNormCase>{{{3, 4, 5, 6}, {6}},
                                                              {{3, 4, 5, 6}, {5, 6}},
                                                              {{3, 4, 5, 6}, {4, 5, 6}},
                                                              {{200, 64}, {64}},
                                                              {{5000, 9}, {9}},
                                                              {{5000, 19}, {19}},
                                                              {{4, 3, 5, 16}, {5, 16}},
                                                              {{7, 1}, {1}},
                                                              {{33}, {33}},
                                                              {{2, 1537}, {1537}}}) {
      const at::Tensor input = at::randn(of.shape) * 2 + 1;
      const at::Tensor weight = at::randn(of.normalized);
      const at::Tensor bias = at::randn(of.normalized);
      const std::string what = list_of(of.shape) + " over " + list_of(of.normalized);
      expect_same_norms(input, of.normalized, weight, bias, what);
      expect_same_norms(input, of.normalized, weight, {}, what + ", no bias");
      expect_same_norms(input, of.normalized, {}, {}, what + ", the input alone");
    }
    expect_same_norms(at::randn({3, 5, 4}).transpose(1, 2), {5}, at::randn({5}), at::randn({5}), "transposed");
  }
}

// LibTorch's mean of a row with an infinity is NaN, and ours the infinity; what is computed from it is the same.
TEST(LayerNormKernels, TakeInfinitiesAndNaN) {
  const at::NoGradGuard no_grad;
  at::manual_seed(15);
  const at::Tensor input = at::randn({6, 37});
  input[0][3] = std::numeric_limits<float>::infinity();
  input[1][36] = std::numeric_limits<float>::quiet_NaN();
  input[2] = 3;  // no variance
  const std::string source =
      "def f(x: Tensor, grad: Tensor):\n"
      "    y, mean, deviation = torch.native_layer_norm(x, [37], None, None, 1e-5)\n"
      "    of_x, of_w, of_b = torch.native_layer_norm_backward(grad, x, [37], mean, deviation, None, "
      "None, [True, False, False])\n"
      "    return y, of_x\n";
  const torch::jit::Stack arguments = {input, at::randn_like(input)};
  const c10::IValue got = testing::run(*prepared_function(source), arguments);
  const c10::IValue expected = testing::run(*plain_function(source), arguments);
  for (const size_t i : {0, 1}) {
    expect_alike(got.toTupleRef().elements()[i].toTensor(), expected.toTupleRef().elements()[i].toTensor(),
                 "special values");
  }
}

TEST(LayerNormKernels, RoundLittle) {
  const at::NoGradGuard no_grad;
  at::manual_seed(16);
  const at::Tensor input = at::randn({4, 5000}) + at::tensor({0.0F, 10.0F, 100.0F, 1000.0F}).view({4, 1});
  const auto [out, mean, deviation] = at::native_layer_norm(input.to(at::kDouble), {5000}, {}, {}, 1e-5);
  const auto plan =
      prepared_function("def f(x: Tensor):\n    return torch.native_layer_norm(x, [5000], None, None, 1e-5)\n");
  const c10::IValue results = testing::run(*plan, {input});
  const auto& got = results.toTupleRef().elements();
  EXPECT_LT((got[1].toTensor() - mean).abs().max().item<double>(), 1e-4);
  EXPECT_LT((got[2].toTensor() / deviation - 1).abs().max().item<double>(), 1e-6);
}

}  // namespace
}  // namespace sconce
