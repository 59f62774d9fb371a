// Operands that are written before backward. Where LibTorch's operator reshapes or scales an operand, autograd keeps the
// copy and the write is no error; where autograd keeps the operand itself, it is one.
#include <sconce/module.h>

#include "base/exception_message.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <functional>
#include <string>
#include <vector>

namespace sconce {
namespace {

using Trainee = std::function<at::Tensor(const at::Tensor&)>;

// The gradients of a call's arguments, or how the call or its backward raised.
struct Trained {
  std::vector<at::Tensor> gradients;
  std::string error;  // the first words
};

Trained trained(const at::Tensor& input, const at::Tensor& weight, const Trainee& call) {
  const at::Tensor x = input.detach().clone().requires_grad_();
  weight.mutable_grad() = at::Tensor();
  try {
    call(x).sum().backward();
  } catch (const std::exception& error) {
    const std::string text = sconce::message_of(error);
    return {{}, text.substr(0, text.find(':'))};
  }
  return {{x.grad(), weight.grad()}, {}};
}

// Returns the result, or the first of several.
at::Tensor first_of(const c10::IValue& result) {
  return result.isTensor() ? result.toTensor() : result.toTupleRef().elements()[0].toTensor();
}

// Compares the method `forward(self, x)` with LibTorch's interpreter, in calls of both plans. Returns whether backward
// raises.
bool raises_in_both(const std::string& method, const std::vector<int64_t>& sizes) {
  const at::Tensor weight = (at::randn({6, 6}, at::kDouble) * 0.3).requires_grad_();
  const torch::jit::Module script = testing::module_of(method, {{"weight", weight}});
  const Module module = accelerate(script, Options().compile(CompileMode::kBlocking));
  const at::Tensor input = at::randn(sizes, at::kDouble);
  torch::jit::Module oracle = script;  // shares the weight
  const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
  bool raises = false;
  for (int call = 0; call < 4; ++call) {
    const Trained got = trained(input, weight, [&](const at::Tensor& x) { return first_of(module.forward({x})); });
    const Trained expected = trained(input, weight, [&](const at::Tensor& x) { return first_of(oracle.forward({x})); });
    EXPECT_EQ(got.error, expected.error) << method << "call " << call;
    raises = !expected.error.empty();
    for (size_t i = 0; i < got.gradients.size() && i < expected.gradients.size(); ++i) {
      EXPECT_TRUE(at::allclose(got.gradients[i], expected.gradients[i])) << method << "call " << call;
    }
  }
  return raises;
}

// A method that calls an operator on what is made of v, and writes v later. An unused write would be no part of the program.
std::string after_call(const std::string& call, const std::string& write = "v.add_(1.0)") {
  return "def forward(self, x):\n    v = x * 1.5\n    y = torch.tanh(" + call + ") * 2.0\n    " + write +
         "\n    return y.sum() + v.sum()\n";
}

// Backward uses a list of numbers as it was when the operator ran.
TEST(OperandsCopiedByAutograd, AListThatIsWrittenLater) {
  const auto method = [](const std::string& sizes, const std::string& made, const std::string& write) {
    return "def forward(self, x):\n    v = x * 1.5\n    s = [" + sizes + "]\n    " + made +
           "\n    y = y * torch.tanh(y)\n    " + write + "\n    return torch.tanh(y) * self.weight.sum(), s\n";
  };
  const std::string split = "a, b = torch.split_with_sizes(v, s, 1)\n    y = a * b";
  for (const char* write : {"s[0] = 1\n    s[1] = 5", "s.append(0)", "if v.size(0) == 4:\n        s[0] = 0"}) {
    EXPECT_FALSE(raises_in_both(method("5, 1", split, write), {4, 6}));
    EXPECT_FALSE(raises_in_both(method("x.size(1) - 1, 1", split, write), {4, 6}));
    EXPECT_FALSE(raises_in_both(method("x.size(0) - 3, x.size(0) - 4", "y = v.permute(s) + 0.5", write), {4, 6}));
    EXPECT_FALSE(raises_in_both(method("x.size(0) - 4, x.size(0) - 3", "y = v.sum(s)", write), {4, 6}));
  }
}

TEST(OperandsCopiedByAutograd, ABatchThatLinearMakesAMatrixOf) {
  EXPECT_FALSE(raises_in_both(after_call("torch.linear(v.transpose(0, 1), self.weight)"), {4, 3, 6}));
  EXPECT_FALSE(raises_in_both(after_call("torch.linear(v.transpose(0, 1), self.weight, self.weight[0])"), {4, 3, 6}));
  EXPECT_FALSE(raises_in_both(after_call("torch.linear(v.transpose(0, 1), self.weight)", "v[0] = v[1]"), {4, 3, 6}));
  EXPECT_FALSE(raises_in_both(after_call("torch.linear(v.transpose(0, 2), self.weight)"), {4, 3, 2, 6}));
}

TEST(OperandsCopiedByAutograd, ABatchThatLinearViewsAsAMatrix) {
  EXPECT_TRUE(raises_in_both(after_call("torch.linear(v, self.weight)"), {4, 3, 6}));
  EXPECT_TRUE(raises_in_both(after_call("torch.linear(v[1:], self.weight)"), {4, 3, 6}));
  EXPECT_TRUE(raises_in_both(after_call("torch.linear(v.t(), self.weight)"), {6, 3}));
}

TEST(OperandsCopiedByAutograd, BatchesThatMatmulReshapes) {
  EXPECT_FALSE(raises_in_both(after_call("torch.matmul(v.transpose(0, 1), self.weight)"), {4, 3, 6}));
  EXPECT_FALSE(raises_in_both(after_call("torch.matmul(self.weight, v)"), {4, 6, 3}));
  EXPECT_TRUE(raises_in_both(after_call("torch.matmul(v, self.weight)"), {4, 3, 6}));
  EXPECT_TRUE(raises_in_both(after_call("torch.matmul(v, v.transpose(1, 2)).sum() * self.weight"), {4, 3, 6}));
}

TEST(OperandsCopiedByAutograd, ImagesThatNormsMakeContiguous) {
  const std::string group = "torch.group_norm(v.transpose(0, 1), 3, self.weight[0])";
  const std::string instance =
      "torch.instance_norm(v.transpose(0, 1), self.weight[0], self.weight[1], None, None, True, 0.1, 1e-5, True)";
  for (const std::string& norm : {group, instance}) {
    EXPECT_FALSE(raises_in_both(after_call(norm), {6, 2, 5}));
    EXPECT_FALSE(raises_in_both(after_call(norm, "v[0] = v[1]"), {6, 2, 4, 5}));
  }
  EXPECT_TRUE(raises_in_both(after_call("torch.group_norm(v, 3, self.weight[0])"), {2, 6, 5}));
}

TEST(OperandsCopiedByAutograd, OfWritesInLoopsAndBranches) {
  const char* const kLoop = R"(
def forward(self, x):
    v = x * 1.5
    y = x.sum()
    for i in range(3):
        y = y + torch.tanh(torch.linear(v.transpose(0, 1), self.weight)).sum() * 2.0
        v.mul_(0.5)
    return y.sum() + v.sum()
)";
  EXPECT_FALSE(raises_in_both(kLoop, {4, 3, 6}));
  const char* const kBranch = R"(
def forward(self, x):
    v = x * 1.5
    y = torch.tanh(torch.linear(v.transpose(0, 1), self.weight)) * 2.0
    if bool(x.sum() < 1000.0):
        v.mul_(0.5)
    return y.sum() + v.sum()
)";
  EXPECT_FALSE(raises_in_both(kBranch, {4, 3, 6}));
}

// The caller gets a view of a parameter beside a view of what is written: both are in the caller's hands.
TEST(OperandsCopiedByAutograd, OfViewsAndBranchesThatTheCallerMayHold) {
  EXPECT_FALSE(raises_in_both(R"(
def forward(self, x):
    v = x * 1.5
    w = self.weight.t()
    if bool(x.sum() < 1000.0):
        t = v.transpose(0, 1)
    else:
        t = v
    y = torch.tanh(torch.linear(t, self.weight)) * 2.0
    v.add_(1.0)
    return y, w, v[1:]
)",
                              {4, 3, 6}));
}

std::string after_attention(const std::string& written, const std::string& operands = "q, k, v") {
  return R"(
def forward(self, x):
    q = torch.matmul(x, self.weight)
    k = torch.matmul(x, self.weight.t())
    v = torch.tanh(k) * 0.5
    a = torch.scaled_dot_product_attention()" +
         operands + R"()
    b = torch.scaled_dot_product_attention()" +
         operands + R"(, None, 0.0, True)
    )" + written +
         ".mul_(2.0)\n    return a.sum() + b.sum() + " + written + ".sum()\n";
}

TEST(OperandsCopiedByAutograd, QueriesAndKeysThatAttentionScales) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{5, 6}, {3, 5, 6}, {2, 2, 3, 5, 6}}) {
    EXPECT_FALSE(raises_in_both(after_attention("q"), sizes));
    EXPECT_FALSE(raises_in_both(after_attention("k"), sizes));
  }
  EXPECT_TRUE(raises_in_both(after_attention("v"), {3, 5, 6}));
  EXPECT_TRUE(raises_in_both(after_attention("q"), {2, 3, 5, 6})) << "flash attention keeps them";
  EXPECT_FALSE(raises_in_both(after_attention("q", "q, k, v[:, :, :, :4]"), {2, 3, 5, 6})) << "not for such values";
}

// The caller may write too.
TEST(OperandsCopiedByAutograd, OfAResultThatTheCallerWrites) {
  const at::Tensor weight = (at::randn({6, 6}, at::kDouble) * 0.3).requires_grad_();
  const torch::jit::Module script = testing::module_of(R"(
def forward(self, x):
    q = torch.matmul(x, self.weight)
    a = torch.scaled_dot_product_attention(q, x, x)
    b = torch.scaled_dot_product_attention(q, x, x, None, 0.0, True)
    return a * b, q
)",
                                                       {{"weight", weight}});
  const Module module = accelerate(script, Options().compile(CompileMode::kBlocking));
  torch::jit::Module oracle = script;
  const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
  const auto written = [](const c10::IValue& results) {
    const auto& elements = results.toTupleRef().elements();
    elements[1].toTensor().mul_(2.0);
    return elements[0].toTensor();
  };
  const at::Tensor input = at::randn({5, 6}, at::kDouble);
  for (int call = 0; call < 4; ++call) {
    const Trained got = trained(input, weight, [&](const at::Tensor& x) { return written(module.forward({x})); });
    const Trained expected = trained(input, weight, [&](const at::Tensor& x) { return written(oracle.forward({x})); });
    EXPECT_EQ(expected.error, "");
    ASSERT_EQ(got.error, "") << "call " << call;
    EXPECT_TRUE(at::allclose(got.gradients[1], expected.gradients[1])) << "call " << call;
  }
}

}  // namespace
}  // namespace sconce
