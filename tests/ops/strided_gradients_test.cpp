// Backward texts do what LibTorch does with a gradient or an argument before it calls an operator on contiguous memory.
#include "tests/ops/eager_gradients.h"
#include "tests/ops/gradient_cases.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>

#include <numeric>

namespace sconce {
namespace {

using testing::GradientCase;
using testing::Tensors;
using testing::Values;

at::Tensor with_reversed_strides(const at::Tensor& tensor) {
  std::vector<int64_t> reversed(static_cast<size_t>(tensor.dim()));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return tensor.permute(reversed).contiguous().permute(reversed);
}

// Every other element of a longer tensor.
at::Tensor with_gaps(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor : at::stack({tensor, tensor}, -1).select(-1, 0);
}

// Integers and masks alone: gradients_test.cpp does the same with floats.
Values with_strided_indices(const Values& values) {
  Values strided = values;
  for (c10::IValue& value : strided) {
    if (value.isTensor() && value.toTensor().defined() && !value.toTensor().is_floating_point()) {
      value = with_gaps(with_reversed_strides(value.toTensor()));
    }
  }
  return strided;
}

// Returns the gradients that arrive, in one of the forms that operators give them.
Tensors strided(const Tensors& grads, size_t form) {
  Tensors all;
  for (const at::Tensor& grad : grads) {
    all.push_back(form == 0   ? at::full({}, 0.5, grad.options()).expand(grad.sizes())
                  : form == 1 ? with_reversed_strides(grad)
                              : with_gaps(grad));
  }
  return all;
}

TEST(StridedGradients, AgreeWithLibTorchsAutograd) {
  size_t compared = 0;
  testing::for_every_case(
      [&](const GradientCase& each, int64_t n) {
        const Values arguments = with_strided_indices(each.arguments(n));
        const std::vector<size_t> needed = testing::differentiable_positions(each, arguments);
        const auto leaves_of = [&](const std::vector<size_t>& leaves) {
          Values values = arguments;
          for (const size_t position : testing::floating_positions(values)) {
            values[position] = values[position].toTensor().detach().clone();
          }
          for (const size_t leaf : leaves) {
            values[leaf].toTensor().requires_grad_(true);
          }
          return values;
        };
        if (needed.empty() || !testing::is_differentiated(each, leaves_of(needed))) {
          return;
        }
        for (size_t form = 0; form < 3; ++form) {
          const Values leaves = leaves_of(needed);
          const Values results = testing::call_operator(*each.op, leaves);
          const Tensors grads = strided(testing::random_like(results), form);
          const Tensors expected = testing::eager_gradients(results, testing::tensors_at(leaves, needed), grads);
          const Values plain = leaves_of({});
          const testing::ForwardPass forward = testing::run_forward(*each.op, plain);
          for (size_t i = 0; i < results.size(); ++i) {
            EXPECT_TRUE(!results[i].isTensor() || testing::agree(forward.results[i], results[i].toTensor().detach(), 1e-10))
                << each.text << ", result " << i;
          }
          const Tensors ours = testing::run_backward(*each.op, plain, forward, grads, needed);
          for (size_t i = 0; i < needed.size(); ++i) {
            EXPECT_TRUE(testing::agree(ours[needed[i]], expected[i], testing::tolerance_for(*each.op, at::kDouble)))
                << each.text << ", argument " << needed[i] << ", form " << form;
            ++compared;
          }
        }
      },
      {5});
  EXPECT_GT(compared, 500U);
}

}  // namespace
}  // namespace sconce
