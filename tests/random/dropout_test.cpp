// Dropout on the simulated GPU: the numbers, the results and the gradients of LibTorch's operators there.
#include "tests/cuda_graphs/module_on_both.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using DropoutFunction = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w)>;

class DropoutOnGpu : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), IsEmpty()); }

  // Returns the result on the CPU, and after it the gradients of x and w.
  std::vector<at::Tensor> train(const DropoutFunction& function, const at::Tensor& x, const at::Tensor& w, uint64_t seed) {
    at::manual_seed(seed);
    const at::Tensor leaf = gpu_.tensor(x).set_requires_grad(true);
    const at::Tensor result = function(leaf, w);
    const auto gradients = torch::autograd::grad({weighted_sum({result})}, {leaf, w});
    return {gpu_.values(result.detach()), gpu_.values(gradients[0]), gpu_.values(gradients[1])};
  }

  // Trains a module of this body and compares every call with the function of LibTorch's operators.
  std::string expect_equal(const std::string& body, const DropoutFunction& eager, at::IntArrayRef sizes) {
    ModuleOnBoth both(gpu_, "\ndef forward(self, x):\n    return " + body + "\n",
                      {{"w", (at::randn({6, 6}) * 0.5).set_requires_grad(true)}});
    const at::Tensor w = both.gpu.script_module().attr("w").toTensor();
    const DropoutFunction ours = [&](const at::Tensor& x, const at::Tensor&) { return both.gpu.forward({x}).toTensor(); };
    for (uint64_t call = 0; call < 8; ++call) {
      const at::Tensor x = at::randn(sizes);
      const auto found = train(ours, x, w, call);
      const auto expected = train(eager, x, w, call);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_TRUE(agree(c10::IValue(found[i]), c10::IValue(expected[i]), 1e-5)) << body << ", call " << call << ", " << i;
      }
    }
    const std::vector<DifferentiableExplanation> none;
    std::string plans;
    for (const PlanExplanation& plan : both.gpu.method("forward").explain().plans) {
      for (const DifferentiableExplanation& each : plan.gradients ? plan.gradients->subgraphs : none) {
        plans += each.plans.at(0).text;
        for (const RecordedExplanation& range : each.plans.at(0).recorded) {
          plans += range.plan.at(0).text;
        }
      }
    }
    return plans;
  }

  SimulatedGpu gpu_;
};

TEST_F(DropoutOnGpu, DrawsAsLibTorchDoes) {
  const std::string plans = expect_equal(
      "torch.dropout(torch.tanh(torch.mm(x, self.w)), 0.25, True).exp()",
      [](const at::Tensor& x, const at::Tensor& w) { return at::dropout(at::tanh(at::mm(x, w)), 0.25, true).exp(); },
      {5, 6});
  EXPECT_THAT(plans, HasSubstr("native_dropout"));
  EXPECT_THAT(plans, Not(HasSubstr("bernoulli")));
}

TEST_F(DropoutOnGpu, OfAllOrNothingIsAsLibTorchs) {
  for (const double p : {0.0, 1.0}) {
    expect_equal(
        "torch.dropout(torch.tanh(torch.mm(x, self.w)), " + std::to_string(p) + ", True).exp()",
        [p](const at::Tensor& x, const at::Tensor& w) { return at::dropout(at::tanh(at::mm(x, w)), p, true).exp(); },
        {5, 6});
  }
}

TEST_F(DropoutOnGpu, OfNoElementsIsAsLibTorchs) {
  expect_equal(
      "torch.dropout(torch.tanh(torch.mm(x, self.w)), 0.25, True).exp()",
      [](const at::Tensor& x, const at::Tensor& w) { return at::dropout(at::tanh(at::mm(x, w)), 0.25, true).exp(); },
      {0, 6});
}

TEST_F(DropoutOnGpu, OfSeveralTensorsDrawsInOrder) {
  expect_equal("torch.dropout(torch.tanh(torch.dropout(torch.mm(x, self.w), 0.5, True)), 0.125, True) * 2",
               [](const at::Tensor& x, const at::Tensor& w) {
                 return at::dropout(at::tanh(at::dropout(at::mm(x, w), 0.5, true)), 0.125, true) * 2;
               },
               {7, 6});
}

// LibTorch multiplies matrices, and calls dropout on the weights.
TEST_F(DropoutOnGpu, OfAttentionDrawsAsLibTorchDoes) {
  expect_equal("torch.scaled_dot_product_attention(torch.matmul(x, self.w), x, x, None, 0.25) * 2",
               [](const at::Tensor& x, const at::Tensor& w) {
                 const at::Tensor scores = at::matmul(at::matmul(x, w), x.transpose(-2, -1)) / std::sqrt(6.0);
                 return at::matmul(at::dropout(at::softmax(scores, -1), 0.25, true), x) * 2;
               },
               {2, 5, 6});
}

// Gradients of the squared norm of gradients.
TEST_F(DropoutOnGpu, IsDifferentiatedTwice) {
  ModuleOnBoth both(gpu_, R"(
def forward(self, x):
    return torch.dropout(torch.tanh(torch.mm(x, self.w)), 0.25, True).exp()
)",
                    {{"w", (at::randn({6, 6}, at::kDouble) * 0.5).set_requires_grad(true)}});
  const at::Tensor w = both.gpu.script_module().attr("w").toTensor();
  const auto penalty = [&](const DropoutFunction& function, const at::Tensor& x, uint64_t seed) {
    at::manual_seed(seed);
    const auto first = torch::autograd::grad({function(x, w).sum()}, {w}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    return gpu_.values(torch::autograd::grad({first[0].pow(2).sum()}, {w})[0]);
  };
  for (uint64_t call = 0; call < 6; ++call) {
    const at::Tensor x = gpu_.tensor(at::randn({5, 6}, at::kDouble));
    const at::Tensor found =
        penalty([&](const at::Tensor& in, const at::Tensor&) { return both.gpu.forward({in}).toTensor(); }, x, call);
    const at::Tensor expected =
        penalty([](const at::Tensor& in,
                   const at::Tensor& weight) { return at::dropout(at::tanh(at::mm(in, weight)), 0.25, true).exp(); },
                x, call);
    EXPECT_TRUE(agree(c10::IValue(found), c10::IValue(expected), 1e-9)) << call;
  }
}

}  // namespace
}  // namespace sconce::testing
