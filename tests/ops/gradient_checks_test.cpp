// The gradients in the rows against finite differences, and their own gradients against LibTorch's autograd.
#include "tests/ops/eager_gradients.h"
#include "tests/ops/gradient_cases.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace sconce {
namespace {

using testing::GradientCase;
using testing::Tensors;
using testing::Values;

// ---- finite differences ---------------------------------------------------------------------------------------------

double weighted_sum(const Values& values, const Tensors& weights) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i].toTensor().is_floating_point() ? (values[i].toTensor() * weights[i]).sum().item<double>() : 0;
  }
  return sum;
}

// Central differences in a random direction; the random points avoid kinks with certainty enough.
TEST(GradientChecks, AgreeWithFiniteDifferences) {
  testing::for_every_case([](const GradientCase& each, int64_t n) {
    const Values arguments = each.arguments(n);
    if (each.family == "kinks" || !testing::is_differentiated(each, arguments)) {
      return;
    }
    const Values start = testing::copies_of(arguments, at::kDouble);
    const testing::ForwardPass forward = testing::run_forward(*each.op, start);
    const Tensors grads = testing::random_like(forward.results);
    if (forward.results[0].toTensor().scalar_type() == at::kFloat) {
      return;  // a cast; the differences are too small for it
    }
    const std::vector<size_t> needed = testing::differentiable_positions(each, arguments);
    const Tensors gradients = testing::run_backward(*each.op, start, forward, grads, needed);
    for (const size_t position : needed) {
      if (!gradients[position].defined()) {
        continue;
      }
      const at::Tensor direction = at::randn_like(arguments[position].toTensor());
      constexpr double kStep = 1e-6;
      const auto value_at = [&](double step) {
        Values moved = testing::copies_of(arguments, at::kDouble);
        moved[position] = moved[position].toTensor() + step * direction;
        return weighted_sum(testing::call_operator(*each.op, moved), grads);
      };
      const double difference = (value_at(kStep) - value_at(-kStep)) / (2 * kStep);
      EXPECT_NEAR((gradients[position] * direction).sum().item<double>(), difference, 2e-5 * (1 + std::abs(difference)))
          << each.text << ", argument " << position;
    }
  });
}

// ---- second order ---------------------------------------------------------------------------------------------------

// The sum of the gradients that depend on something, each with weights of its own; undefined if none does.
at::Tensor sum_of(const Tensors& gradients) {
  at::manual_seed(3);
  at::Tensor sum;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined() && gradient.requires_grad()) {
      const at::Tensor part = (gradient * at::rand(gradient.sizes(), gradient.options())).sum();
      sum = sum.defined() ? sum + part : part;
    }
  }
  return sum;
}

Tensors gradients_or_zeros(const at::Tensor& sum, const Tensors& leaves) {
  Tensors gradients(leaves.size());
  if (sum.defined()) {
    gradients =
        torch::autograd::grad({sum}, leaves, {}, /*retain_graph=*/true, /*create_graph=*/false, /*allow_unused=*/true);
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    gradients[i] = gradients[i].defined() ? gradients[i] : at::zeros_like(leaves[i]);
  }
  return gradients;
}

// Returns eager's derivatives of its gradients. Throws where LibTorch has none.
Tensors eager_second_order(const GradientCase& each, const Values& arguments, const std::vector<size_t>& needed,
                           const Tensors& grads) {
  Tensors leaves = testing::tensors_at(arguments, needed);
  const Tensors gradients =
      testing::eager_gradients(testing::call_operator(*each.op, arguments), leaves, grads, /*create_graph=*/true);
  leaves.insert(leaves.end(), grads.begin(), grads.end());
  return gradients_or_zeros(sum_of(gradients), leaves);
}

// Where a gradient requires a gradient, a penalty on it has one, of zeros perhaps.
TEST(GradientChecks, RequireAGradientWhereLibTorchsDo) {
  testing::for_every_case(
      [](const GradientCase& each, int64_t n) {
        const std::vector<size_t> needed = testing::differentiable_positions(each, each.arguments(n));
        const Values leaves = testing::copies_of(each.arguments(n), at::kDouble, needed);
        if (!testing::is_differentiated(each, leaves)) {
          return;
        }
        const Values results = testing::call_operator(*each.op, leaves);
        const Tensors grads = testing::random_like(results);
        const auto theirs = testing::unless_it_raises([&] {
          return testing::eager_gradients(results, testing::tensors_at(leaves, needed), grads, /*create_graph=*/true);
        });
        if (!theirs) {
          return;
        }
        const testing::ForwardPass forward = testing::run_forward(*each.op, leaves);
        const Tensors ours = testing::run_backward(*each.op, leaves, forward, grads, needed, /*records=*/true);
        for (size_t i = 0; i < needed.size(); ++i) {
          const at::Tensor& gradient = ours[needed[i]];
          const at::Tensor& expected = (*theirs)[i];
          EXPECT_EQ(gradient.defined() && gradient.requires_grad(), expected.defined() && expected.requires_grad())
              << each.text << ", argument " << needed[i];
        }
      },
      {2});
}

// Returns whether LibTorch has a derivative of the gradients.
bool expect_second_order(const GradientCase& each, const Values& arguments) {
  const std::vector<size_t> needed = testing::differentiable_positions(each, arguments);
  const Values theirs = testing::copies_of(arguments, at::kDouble, needed);
  if (!testing::is_differentiated(each, theirs)) {
    return false;
  }
  const Values ours = testing::copies_of(arguments, at::kDouble, needed);
  Tensors grads = testing::random_like(testing::call_operator(*each.op, testing::copies_of(arguments, at::kDouble)));
  std::ranges::for_each(grads, [](at::Tensor& grad) { grad.requires_grad_(true); });
  const auto expected = testing::unless_it_raises([&] { return eager_second_order(each, theirs, needed, grads); });
  if (!expected) {
    return false;
  }
  Tensors leaves = testing::tensors_at(ours, needed);
  leaves.insert(leaves.end(), grads.begin(), grads.end());
  testing::ForwardPass forward = testing::run_forward(*each.op, ours);
  // What backward has from forward is a constant to autograd, but for the results.
  for (c10::IValue& saved : forward.saved) {
    saved = saved.isTensor() ? c10::IValue(saved.toTensor().detach()) : saved;
  }
  const Tensors gradients = testing::run_backward(*each.op, ours, forward, grads, needed, /*records=*/true);
  const Tensors actual = gradients_or_zeros(sum_of(gradients), leaves);
  for (size_t i = 0; i < leaves.size(); ++i) {
    // LibTorch divides by zero in some variances of no elements.
    const bool is_nan = gradients[0].defined() && gradients[0].numel() == 0 && (*expected)[i].isnan().any().item<bool>();
    EXPECT_TRUE(is_nan || testing::agree(actual[i], (*expected)[i], 100 * testing::tolerance_for(*each.op, at::kDouble)))
        << each.text << ", leaf " << i;
  }
  return true;
}

TEST(GradientChecks, AgreeWithLibTorchsAutogradInSecondOrder) {
  size_t agreed = 0;
  testing::for_every_case(
      [&](const GradientCase& each, int64_t n) { agreed += expect_second_order(each, each.arguments(n)) ? 1 : 0; });
  EXPECT_GT(agreed, 500U) << "LibTorch has no second derivative where it had one";
}

// A mean of no elements divides by zero, but its gradients have no element that could be NaN.
TEST(GradientChecks, AgreeInSecondOrderOnTensorsWithoutElements) {
  size_t agreed = 0;
  testing::for_every_case(
      [&](const GradientCase& each, int64_t n) {
        const auto arguments = testing::unless_it_raises([&] { return each.arguments(n); });
        const bool is_accepted = arguments && testing::unless_it_raises([&] {
                                   return testing::call_operator(*each.op, testing::copies_of(*arguments, at::kDouble));
                                 });
        agreed += is_accepted && expect_second_order(each, *arguments) ? 1 : 0;
      },
      {0});
  EXPECT_GT(agreed, 400U) << "LibTorch has no second derivative where it had one";
}

}  // namespace
}  // namespace sconce
