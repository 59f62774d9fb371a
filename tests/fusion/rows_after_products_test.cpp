// Groups that run on each part of a product's or convolution's result once it is complete.
#include "tests/support/graphs.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

constexpr int kCalls = 6;  // the weights are packed in the third
constexpr double kTolerance = 1e-4;

std::string method_of(const std::string& body, const std::string& result = "Tensor") {
  std::string text = "def forward(self, x: Tensor, r: Tensor) -> " + result + ":\n";
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = std::min(body.find('\n', begin), body.size());
    text += "    " + body.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return text;
}

struct Inputs {
  at::Tensor x;
  at::Tensor r;
};

// Runs the method with one thread and with several. `takes_rows`: whether a product is before a group at all.
void expect_equal(const std::string& body, const std::vector<std::pair<std::string, c10::IValue>>& attributes,
                  const std::vector<Inputs>& inputs, bool takes_rows = true, const std::string& result = "Tensor") {
  const at::NoGradGuard no_grad;
  const int threads_before = at::get_num_threads();
  const torch::jit::Module reference = module_of(method_of(body, result), attributes);
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    Module ours = accelerate(reference.deepcopy(), Options().compile(CompileMode::kBlocking));
    for (const Inputs& each : inputs) {
      for (int call = 0; call < kCalls; ++call) {
        const c10::IValue expected = reference.get_method("forward")({each.x, each.r});
        EXPECT_TRUE(agree(ours.forward({each.x, each.r}), expected, kTolerance))
            << body << "\ncall " << call << ", " << threads << " threads, sizes " << each.x.sizes();
      }
    }
    bool found = false;
    for (const PlanExplanation& plan : ours.method("forward").explain().plans) {
      found = found || plan.text.find(", with the group") != std::string::npos;
    }
    EXPECT_EQ(found, takes_rows) << body;
  }
  at::set_num_threads(threads_before);
}

std::vector<std::pair<std::string, c10::IValue>> linear_weights(int64_t n, int64_t k) {
  return {{"w", at::randn({n, k}) / 8}, {"b", at::randn({n})}};
}

std::vector<Inputs> matrices(int64_t n, int64_t k) {
  std::vector<Inputs> inputs;
  for (const int64_t m : {300, 1, 7, 64}) {
    inputs.push_back({at::randn({m, k}), at::randn({m, n})});
  }
  return inputs;
}

TEST(RowsAfterProducts, OfLinearLayers) {
  at::manual_seed(1);
  for (const char* after : {
           "return torch.gelu(y)",
           "return torch.tanh(y) * 2.0 + r",
           "return r - y * torch.sigmoid(y)",
           "return (y + r).relu_()",
           "return torch.where(y > r, y, r * 0.5)",
       }) {
    expect_equal(std::string("y = torch.linear(x, self.w, self.b)\n") + after, linear_weights(96, 80), matrices(96, 80));
  }
  expect_equal("y = torch.linear(x, self.w)\nreturn torch.sigmoid(y) + r", linear_weights(700, 900), matrices(700, 900));
  expect_equal("y = torch.matmul(x, self.w.t())\nreturn torch.sigmoid(y) + r", linear_weights(40, 33), matrices(40, 33));
  expect_equal("y = torch.linear(x.unsqueeze(0), self.w, self.b)\nreturn torch.gelu(y) + r", linear_weights(40, 33),
               matrices(40, 33));
}

TEST(RowsAfterProducts, MayReadTheProductsOwnOperand) {
  at::manual_seed(2);
  expect_equal("y = torch.linear(x, self.w, self.b)\nreturn torch.gelu(y) + x", linear_weights(64, 64), matrices(64, 64));
  // Both operands are local: the result must not take the place of one of them.
  expect_equal(
      "v = torch.tanh(x) + 1.0\nu = torch.linear(v, self.w, self.b)\nz = torch.sigmoid(u) * v\n"
      "return torch.linear(z, self.w, self.b) + r",
      linear_weights(64, 64), matrices(64, 64));
}

TEST(RowsAfterProducts, OfOtherDtypesAndSeveralResults) {
  at::manual_seed(3);
  const auto weights = linear_weights(48, 32);
  expect_equal("y = torch.linear(x, self.w, self.b)\nreturn (y * 2.0) > r", weights, matrices(48, 32));
  expect_equal("y = torch.linear(x, self.w, self.b)\nreturn torch.to(y, 7) * 3.0 + r", weights, matrices(48, 32));
  expect_equal("y = torch.linear(x, self.w, self.b)\nreturn torch.tanh(y) + r, torch.exp(y) * 2.0", weights,
               matrices(48, 32), true, "Tuple[Tensor, Tensor]");
}

TEST(RowsAfterProducts, AreNotTakenWhereRowsMix) {
  at::manual_seed(4);
  // These groups come after a product, and find at run time that they need all of it, or more than it.
  expect_equal("y = torch.linear(x, self.w, self.b)\nreturn torch.softmax(y + 1.0, 0) + r", linear_weights(48, 32),
               matrices(48, 32));
  expect_equal("y = torch.linear(x, self.w, self.b)\nreturn (y + y.t()) * 2.0", linear_weights(32, 32),
               {{at::randn({32, 32}), at::randn({1})}});
  expect_equal("y = torch.linear(x, self.w, self.b)\nreturn y * r + 1.0", linear_weights(32, 16),
               {{at::randn({1, 16}), at::randn({50, 32})}, {at::randn({50, 16}), at::randn({1, 32})}});
  // The result is used by others than the group.
  expect_equal("y = torch.linear(x, self.w, self.b)\nreturn torch.tanh(y) + r, y", linear_weights(32, 16), matrices(32, 16),
               false, "Tuple[Tensor, Tensor]");
}

TEST(RowsAfterProducts, OfConvolutions) {
  at::manual_seed(5);
  const auto last = at::MemoryFormat::ChannelsLast;
  for (const int64_t groups : {1, 16}) {  // tiles, and direct loops
    std::vector<std::pair<std::string, c10::IValue>> attributes = {
        {"w", (at::randn({16, 16 / groups, 3, 3}) / 4).contiguous(last)},
        {"b", at::randn({16})},
        {"scale", at::randn({1, 16, 1, 1})},
        {"mean", at::randn({16})},
        {"var", at::rand({16}) + 0.5}};
    std::vector<Inputs> inputs;
    for (const auto& [images, height] : std::vector<std::pair<int64_t, int64_t>>{{1, 30}, {3, 9}, {1, 70}}) {
      inputs.push_back({at::randn({images, 16, height, height}).contiguous(last),
                        at::randn({images, 16, height, height}).contiguous(last)});
    }
    inputs.push_back({at::randn({1, 16, 12, 12}), at::randn({1, 16, 12, 12})});  // channels first
    inputs.push_back({at::randn({1, 16, 12, 12}).contiguous(last), at::randn({1, 16, 12, 12})});
    const std::string convolution =
        "y = torch.conv2d(x, self.w, self.b, [1, 1], [1, 1], [1, 1], " + std::to_string(groups) + ")\n";
    for (const char* after : {
             "return torch.relu(y + r)",
             "return torch.hardswish(y)",
             "return torch.silu(y) * self.scale + r",
             "return torch.relu(torch.batch_norm(y, None, None, self.mean, self.var, False, 0.1, 1e-5, True))",
             "return y * torch.sigmoid(r.mean([2, 3], True))",
         }) {
      expect_equal(convolution + after, attributes, inputs,
                   /*takes_rows=*/std::string(after).find("mean(") == std::string::npos);
    }
  }
}

}  // namespace
}  // namespace sconce::testing
