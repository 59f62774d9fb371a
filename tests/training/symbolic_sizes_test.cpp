// sconce::TrainStep with batches that change: the second size is recorded with symbols, and later ones run its plan.
#include "tests/training/two_trainings.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sconce::testing {
namespace {

struct OpenModel {
  const char* name;
  const char* body;  // computes `y` of `x`: Float[batch, 8], and `h`, a hidden layer
  bool is_open = true;
  uint64_t by_plan = 10;  // calls at least
};

// In each, TorchScript reads sizes in another way.
const std::vector<OpenModel> kModels = {
    {"none", "y = h"},
    {"view", "y = h.view(x.size(0), -1)"},
    {"shape", "y = h.reshape(x.shape[0], 2, 4).transpose(1, 2).reshape(x.shape)"},
    {"unpacked", "n, f = x.shape\n    y = h.view(n, 2, f // 2).permute(2, 0, 1).reshape(f // 2, n * 2).t().reshape(n, f)"},
    {"list", "s = x.size()[:-1] + [2, 4]\n    y = h.view(s).flip(2).flatten(1)"},
    {"appended", "s: List[int] = []\n    for i in range(x.dim()):\n        s.append(x.size(i))\n    y = h.view(s)"},
    {"scaled", "y = h * (1.0 / x.size(0))"},
    {"mean", "y = h - h.sum(0) / x.shape[0]"},
    {"numel", "y = h / x.numel() + float(len(x)) * 0.01"},
    {"arange", "y = h + torch.arange(x.size(0)).unsqueeze(1) * 0.01"},
    {"zeros", "y = torch.cat([h, torch.zeros(x.size(0), 8)], 1)[:, 4:12]"},
    {"expand", "y = h + self.a_bias.unsqueeze(0).expand(x.size(0), 8)"},
    {"branch", "y = h\n    if x.size(0) > 4:\n        y = y * 2"},
    {"even", "y = h\n    if x.size(0) % 2 == 0:\n        y = y * 2"},
    {"clamped", "k = min(x.size(0), 4)\n    y = h[:k].mean() + h"},
    {"gram", "y = torch.softmax(h @ h.t() / 3.0, 1) @ h"},
    {"mask", "m = torch.ones(x.size(0), x.size(0)).tril()\n    y = (m @ h) / m.sum(1, keepdim=True)"},
    {"halves", "k = x.size(0) // 2\n    y = torch.cat([h[k:], h[:k]])", true, 6},
    {"chunks", "a, b = h.chunk(2, 1)\n    y = torch.cat([torch.sigmoid(a) * b, b], 1)"},
    {"attention",
     "q = h.view(1, x.size(0), 2, 4).transpose(1, 2)\n    y = torch.scaled_dot_product_attention(q, q, q).transpose(1, "
     "2).reshape(x.size(0), 8)"},
    {"norm", "y = torch.layer_norm(h, [8], self.b_bias + 1, self.a_bias)"},
    {"conv", "y = torch.conv1d(h.unsqueeze(1), self.a_weight[:4, :3].unsqueeze(1), None, 1, 1).mean(1)"},
    {"batch_norm", "y = torch.batch_norm(h, self.b_bias + 1, self.a_bias, None, None, True, 0.1, 1e-5, False)"},
    {"rows", "y = h[torch.argmax(x, 1) % x.size(0)]"},
    {"dropout", "y = torch.dropout(h, 0.3, True)"},
    {"in_place", "y = h.clone()\n    y[0] = 0\n    y[1:].mul_(2)"},
    {"halved", "y = torch.cat([h[:x.size(0) // 2], h[x.size(0) // 2:]])", true, 6},
    {"last", "y = h + h[-1:]"},
    {"every other", "y = h + h[::2].sum(0) * 0.01", true, 5},
    {"inner", "y = h + h[1:-1].sum(0) * 0.01", true, 8},
    {"matmul", "q = h.view(x.size(0), 2, 4)\n    y = (torch.softmax(q @ q.transpose(1, 2), -1) @ q).flatten(1)"},
    {"heads",
     "q = h.view(1, x.size(0), 2, 4).transpose(1, 2)\n    y = (torch.softmax(torch.matmul(q, q.transpose(-2, -1)), -1) @ "
     "q).transpose(1, 2).reshape(x.size(0), 8)"},
    {"folded", "y = (h.view(x.size(0), 1, 8) @ self.b_weight).squeeze(1)"},
    {"vectors",
     "y = h + 0.01 * ((h.view(x.size(0), 2, 4) @ self.a_bias[:4]).sum() + (self.a_bias[:2] @ h.view(x.size(0), 2, "
     "4)).sum())"},
    {"cross", "y = torch.cat([torch.linalg_cross(h[:, :3], x[:, :3] + 1), h[:, 3:]], 1)"},
    {"length", "y = h / (1 + torch.norm(h, 2, 1, True))"},
    {"shifted", "y = h + torch.linear(torch.silu(h[1:] - h[:-1]), self.b_weight).sum() * 0.01"},
    {"shifted twice",
     "d = h[1:] - h[:-1]\n    y = h + torch.linear(torch.silu(d[1:] - d[:-1]), self.b_weight).sum() * 0.01"},
    {"bags", "y = h + torch.embedding_bag(self.b_weight, torch.argmax(x, 1), torch.arange(x.size(0)))[0]"},
    {"conv over rows", "y = torch.conv1d(h.t().unsqueeze(0), self.a_weight.unsqueeze(2), self.a_bias)[0].t()"},
    {"lstm",
     "states = [torch.zeros(1, 1, 2), torch.zeros(1, 1, 2)]\n    weights = [self.a_weight, self.b_weight[:, :2], "
     "self.a_bias, "
     "self.b_bias]\n    y = h + torch.lstm(h.unsqueeze(1), states, weights, True, 1, 0.0, True, False, False)[0].sum(2) * "
     "0.1"},
    {"deviation", "y = h / (1 + torch.std(h, 1, keepdim=True) + torch.var(h))", true, 8},
    {"distances", "y = h + torch.exp(-torch.cdist(h, x)).sum(1, keepdim=True)"},
    {"triangular",
     "t = torch.eye(8) + self.b_weight.tril() * 0.1\n    y = torch.linalg_solve_triangular(t, h.t(), upper=False).t()"},
    {"searched", "y = h + torch.searchsorted(torch.arange(8) * 0.2, h.detach()) * 0.01"},
    {"permuted rows",
     "q = h.view(x.size(0), 2, 4).transpose(1, 2)\n    y = torch.linear(q, self.a_weight[:2, :2], "
     "self.a_bias[:2]).flatten(1)"},
    {"einsum", "q = h.view(x.size(0), 2, 4)\n    y = torch.einsum('bij,bik->bjk', [q, q]).flatten(1)[:, :8]"},
    {"outer",
     "q = h.view(x.size(0), 2, 4)\n    y = torch.einsum('bi,bj,ijk->bk', [q.sum(2), q.sum(1), self.a_weight.view(2, 4, "
     "8)])"},
    {"loop", "y = h\n    for i in range(x.size(0)):\n        y = torch.tanh(y)", false},
    {"row_loop", "r: List[Tensor] = []\n    for row in h:\n        r.append(row * 2)\n    y = torch.stack(r)", false},
    {"root", "y = h / float(x.size(0)) ** 0.5", false},
};

torch::jit::Module module_of(const OpenModel& model) {
  return two_layers("def forward(self, x):\n    h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias))\n    " +
                    std::string(model.body) + "\n    return torch.linear(y, self.b_weight, self.b_bias) * self.scale\n");
}

// Returns the reasons why sizes are fixed, if any, and why calls ran no plan.
std::string reasons_of(const TrainExplanation& explanation) {
  std::string text;
  for (const auto& [reason, times] : explanation.reasons) {
    text += reason + " (" + std::to_string(times) + "); ";
  }
  for (const std::string& why : explanation.why_sizes_are_fixed) {
    text += "fixed: " + why + "; ";
  }
  return text;
}

constexpr int64_t kBatches[] = {6, 9, 14, 6, 5, 2, 31, 9, 7, 3, 4, 1, 12, 40, 1, 8};

TEST(TrainStepSizes, AreOpenWhereTorchScriptReadsThem) {
  for (const OpenModel& model : kModels) {
    SCOPED_TRACE(model.name);
    TwoTrainings both(module_of(model), sgd, {}, [](const at::Tensor& y, const at::Tensor& target) {
      return at::mse_loss(y, target, at::Reduction::Sum) * 0.001;
    });
    uint64_t step = 0;
    for (const int64_t batch : kBatches) {
      if (batch > 1 || std::string(model.name) != "batch_norm") {
        both.train(batch, step++);
      }
    }
    const TrainExplanation explanation = both.step().explain();
    if (model.is_open) {
      EXPECT_GE(explanation.by_plan, model.by_plan) << reasons_of(explanation);
      EXPECT_TRUE(explanation.why_sizes_are_fixed.empty()) << reasons_of(explanation);
      EXPECT_LE(explanation.plans.size(), 6U);
    } else {
      EXPECT_FALSE(explanation.why_sizes_are_fixed.empty()) << reasons_of(explanation);
    }
  }
}

TEST(TrainStepSizes, AreOpenWithTargetsOfClasses) {
  TwoTrainings both(module_of(kModels[1]), adam, TrainOptions().clip_norm(0.5),
                    [](const at::Tensor& y, const at::Tensor& t) { return at::cross_entropy_loss(y, t.argmax(1)); });
  uint64_t step = 0;
  for (int64_t batch = 3; batch < 30; ++batch) {
    both.train(batch, step++);
  }
  const TrainExplanation explanation = both.step().explain();
  EXPECT_GE(explanation.by_plan, 24U) << reasons_of(explanation);
  EXPECT_EQ(explanation.plans.size(), 2U);
}

// A size that C++ code reads as a plain number fixes it; the calls are right all the same.
TEST(TrainStepSizes, AreFixedWhereCodeReadsPlainNumbers) {
  TwoTrainings both(module_of(kModels[0]), sgd, {}, [](const at::Tensor& y, const at::Tensor& target) {
    return at::mse_loss(y, target, at::Reduction::Sum) * 0.01 / static_cast<double>(y.size(0));
  });
  uint64_t step = 0;
  for (const int64_t batch : kBatches) {
    both.train(batch, step++);
    both.train(batch, step++);
  }
  const TrainExplanation explanation = both.step().explain();
  EXPECT_FALSE(explanation.why_sizes_are_fixed.empty()) << reasons_of(explanation);
}

// A module that keeps a size gets the number.
TEST(TrainStepSizes, LeaveNumbersInAttributes) {
  torch::jit::Module module = two_layers(kMlp);
  module.register_attribute("seen", c10::ListType::ofInts(), std::vector<int64_t>());
  module.define("def forward_seen(self, x):\n    self.seen.append(x.size(0) * 2)\n    return self.forward(x)\n");
  const auto optimizer = sgd(parameters_of(module));
  torch::jit::Module wrapper("wrapper");
  wrapper.register_module("inner", module);
  wrapper.define("def forward(self, x):\n    return self.inner.forward_seen(x)\n");
  TrainStep step(
      accelerate(wrapper, Options().compile(CompileMode::kBlocking)),
      [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); }, *optimizer);
  std::vector<int64_t> expected;
  for (const int64_t batch : {3, 5, 7, 5, 9}) {
    step({at::randn({batch, 8})}, {at::randn({batch, 8})});
    expected.push_back(batch * 2);
  }
  const auto seen = module.attr("seen").toListRef();
  ASSERT_EQ(seen.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(seen[i].isInt());
    EXPECT_EQ(seen[i].toInt(), expected[i]);
  }
}

}  // namespace
}  // namespace sconce::testing
