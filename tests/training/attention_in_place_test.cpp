// The result of attention, written in place before backward: an error where LibTorch's backward reads the result.
#include <sconce/module.h>

#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <vector>

namespace sconce {
namespace {

const char* const kMethods = R"(
def forward(self, x, p: float):
    q = torch.relu(x * self.scale)
    y = torch.scaled_dot_product_attention(q, q, q, None, p)
    y.mul_(2.0)
    return y
)";

// Returns the gradient of the input, or nothing if backward raises.
template <typename Call>
std::optional<at::Tensor> gradient(const at::Tensor& input, const Call& call) {
  const at::Tensor x = input.detach().requires_grad_();
  at::manual_seed(1);
  const at::Tensor result = call(x);
  try {
    result.sum().backward();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("modified by an inplace operation"), std::string::npos) << error.what();
    return std::nullopt;
  }
  return x.grad();
}

TEST(AttentionInPlace, RaisesWhereLibTorchRaises) {
  const at::Tensor scale = at::full({}, 0.5, at::kDouble).requires_grad_();
  const torch::jit::Module script = testing::module_of(kMethods, {{"scale", scale}});
  const Module module = accelerate(script, Options().compile(CompileMode::kBlocking));
  size_t raised = 0;
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{2, 3, 5, 8}, {3, 5, 8}, {5, 8}}) {
    for (const double p : {0.0, 0.25}) {
      const at::Tensor input = at::randn(sizes, at::kDouble);
      for (int call = 0; call < 4; ++call) {
        const auto got = gradient(input, [&](const at::Tensor& x) { return module.forward({x, p}).toTensor(); });
        const auto expected = gradient(input, [&](const at::Tensor& x) {
          const at::Tensor q = at::relu(x * scale);
          return at::scaled_dot_product_attention(q, q, q, {}, p).mul_(2.0);
        });
        ASSERT_EQ(got.has_value(), expected.has_value()) << input.sizes() << ", p = " << p << ", call " << call;
        raised += got ? 0 : 1;
        EXPECT_TRUE(!got || at::allclose(*got, *expected)) << input.sizes() << ", p = " << p << ", call " << call;
      }
    }
  }
  EXPECT_GT(raised, 0U);
}

}  // namespace
}  // namespace sconce
