#include "tests/training/same_calls.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

namespace sconce::tests {
namespace {

Tensors leaves_of(const Tensors& arguments) {
  Tensors leaves;
  for (const at::Tensor& argument : arguments) {
    leaves.push_back(argument.detach().clone().set_requires_grad(argument.requires_grad()));
  }
  return leaves;
}

// Runs the function on copies of the arguments. Returns results, arguments afterwards, and gradients.
Tensors outcome(const Function& function, const Tensors& arguments) {
  const Tensors leaves = leaves_of(arguments);
  Tensors all = function(leaves);
  at::Tensor loss;
  for (const at::Tensor& result : Tensors(all)) {
    if (result.defined() && result.requires_grad() && result.is_floating_point()) {
      const at::Tensor part = (result * result).mean();
      loss = loss.defined() ? loss + part : part;
    }
  }
  if (loss.defined() && loss.requires_grad()) {
    loss.backward();
  }
  for (const at::Tensor& leaf : leaves) {
    all.push_back(leaf.detach());
    all.push_back(leaf.grad());
  }
  return all;
}

void expect_equal(const Tensors& found, const Tensors& expected, const std::string& when) {
  ASSERT_EQ(found.size(), expected.size()) << when;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].defined(), expected[i].defined()) << when << ", tensor " << i;
    if (!found[i].defined()) {
      continue;
    }
    EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << when << ", tensor " << i;
    EXPECT_EQ(found[i].requires_grad(), expected[i].requires_grad()) << when << ", tensor " << i;
    EXPECT_EQ(found[i].sizes(), expected[i].sizes()) << when << ", tensor " << i;
    EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-4, 1e-5, /*equal_nan=*/true)) << when << ", tensor " << i;
  }
}

}  // namespace

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

void expect_same(const Function& function, const TracedFunction& traced, const std::vector<Tensors>& calls, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      at::manual_seed(7);
      const Tensors expected = outcome(function, calls[i]);
      at::manual_seed(7);
      expect_equal(outcome(traced, calls[i]), expected, "call " + std::to_string(i) + " of round " + std::to_string(round));
    }
  }
}

TracedFunction expect_same(const Function& function, const std::vector<Tensors>& calls) {
  TracedFunction traced = trace(function, Options().compile(CompileMode::kBlocking));
  expect_same(function, traced, calls, /*rounds=*/3);
  return traced;
}

}  // namespace sconce::tests
