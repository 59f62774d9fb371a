// Linear layers of transposed batches that LibTorch rejects: in its words, which depend on whether the weight requires a
// gradient, also where none is recorded.
#include <sconce/module.h>

#include "base/exception_message.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return one_line_message(error);
  }
  return "";
}

TEST(ProductWords, AreThoseOfTheWayThatLibTorchTakesAboveAutograd) {
  for (const bool requires_grad : {true, false}) {
    const at::Tensor weight = at::randn({6, 8}).requires_grad_(requires_grad);
    const at::Tensor bias = at::randn({6}).requires_grad_(requires_grad);
    const std::vector<std::pair<std::string, std::function<at::Tensor(const at::Tensor&)>>> products = {
        {"torch.linear(x.transpose(0, 1), self.weight, self.bias)",
         [&](const at::Tensor& x) { return at::linear(x.transpose(0, 1), weight, bias); }},
        {"torch.linear(x.transpose(0, 1), self.weight)",
         [&](const at::Tensor& x) { return at::linear(x.transpose(0, 1), weight); }}};
    const at::Tensor good = at::randn({2, 3, 8});
    const std::vector<at::Tensor> wrong = {good.to(at::kDouble), at::randn({2, 3, 7}), at::ones({2, 3, 8}, at::kLong)};
    for (const auto& [text, eager] : products) {
      const torch::jit::Module script =
          module_of("def forward(self, x):\n    return " + text + "\n", {{"weight", weight}, {"bias", bias}});
      for (const bool grad_mode : {false, true}) {
        const c10::AutoGradMode mode(grad_mode);
        const Module module = accelerate(script, Options().compile(CompileMode::kBlocking));
        for (int call = 0; call < 3; ++call) {
          for (const at::Tensor& each : wrong) {
            const std::string expected = error_of([&] { eager(each); });
            ASSERT_NE(expected, "");
            EXPECT_EQ(error_of([&] { module.forward({each}); }), expected) << text << ", call " << call;
          }
          EXPECT_TRUE(at::allclose(module.forward({good}).toTensor(), eager(good), 1e-5, 1e-6)) << text;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sconce::testing
