// Convolutions that clamp their results in one step: LibTorch's results and errors, in every call.
#include <sconce/module.h>

#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/api/module.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace sconce {
namespace {

constexpr int kCalls = 6;  // enough to pack the weights

class ClampedConvolution : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    weight_ = at::randn({32, 8, 3, 3});
    bias_ = at::randn({32});
    const std::string methods =
        "def forward(self, x):\n"
        "    y = torch.conv2d(x, self.weight, self.bias, [1, 1], [1, 1])\n"
        "    return " +
        GetParam() + "\n";
    script_ = testing::module_of(methods, {{"weight", weight_}, {"bias", bias_}});
    module_ = std::make_unique<Module>(accelerate(script_, Options().compile(CompileMode::kBlocking)));
  }

  at::Tensor expected(const at::Tensor& x) { return script_.forward({x}).toTensor(); }
  void expect_equal(const at::Tensor& x) {
    const at::NoGradGuard no_grad;
    const at::Tensor wanted = expected(x);
    for (int i = 0; i < kCalls; ++i) {
      const at::Tensor got = module_->forward({x}).toTensor();
      EXPECT_TRUE(at::allclose(got, wanted, 1e-4, 1e-4, /*equal_nan=*/true)) << GetParam() << ", call " << i;
      EXPECT_EQ(got.scalar_type(), wanted.scalar_type());
      EXPECT_EQ(got.strides(), wanted.strides());
    }
  }
  std::string rejection(const at::Tensor& x) {
    return testing::message_of([&] { module_->forward({x}); });
  }

  at::Tensor weight_, bias_;
  torch::jit::Module script_;
  std::unique_ptr<Module> module_;
};

TEST_P(ClampedConvolution, GivesTheOperatorsResults) {
  const auto last = [](const at::Tensor& images) { return images.contiguous(at::MemoryFormat::ChannelsLast); };
  for (int round = 0; round < 2; ++round) {
    expect_equal(last(at::randn({1, 8, 9, 10})));
    expect_equal(at::randn({2, 8, 7, 7}));
    expect_equal(at::randn({8, 7, 7}));  // no batch
    at::Tensor special = last(at::randn({1, 8, 9, 9}));
    special[0][2][3][3] = std::nan("");
    special[0][2][8][8] = std::numeric_limits<float>::infinity();
    expect_equal(special);
    weight_.mul_(-0.5);
    bias_.zero_();
  }
}

TEST_P(ClampedConvolution, LeavesOtherDtypesAndRejectionsToTheOperators) {
  const at::NoGradGuard no_grad;
  const at::Tensor good = at::randn({1, 8, 9, 9});
  for (const at::Tensor& bad : {at::randn({1, 7, 9, 9}), at::randn({1, 8, 9, 9}, at::kDouble), at::randn({4})}) {
    const std::string wanted = testing::message_of([&] { script_.forward({bad}); });
    ASSERT_FALSE(wanted.empty());
    for (int i = 0; i < kCalls; ++i) {
      const std::string reason = rejection(bad);
      ASSERT_FALSE(reason.empty());
      EXPECT_THAT(wanted, ::testing::HasSubstr(reason.substr(0, reason.find('(')).substr(0, 40)));
      expect_equal(good);
    }
  }
}

TEST_P(ClampedConvolution, GivesGradientsBetweenCallsWithout) {
  const at::Tensor x = at::randn({1, 8, 9, 9});
  for (int round = 0; round < 3; ++round) {
    expect_equal(x);
    at::Tensor ours = x.clone().requires_grad_();
    at::Tensor theirs = x.clone().requires_grad_();
    module_->forward({ours}).toTensor().sum().backward();
    expected(theirs).sum().backward();
    EXPECT_TRUE(at::allclose(ours.grad(), theirs.grad(), 1e-4, 1e-4)) << GetParam();
  }
}

// A result of one channel or of one pixel is contiguous as well as channels-last; relu then makes a contiguous one.
TEST(ClampedConvolutions, HaveTheStridesOfTheClamp) {
  const at::NoGradGuard no_grad;
  const auto last = at::MemoryFormat::ChannelsLast;
  for (const auto& [channels, size] : std::vector<std::pair<int64_t, int64_t>>{{1, 7}, {16, 3}, {16, 7}}) {
    const torch::jit::Module script =
        testing::module_of("def forward(self, x: Tensor) -> Tensor:\n    return torch.relu(torch.conv2d(x, self.w))\n",
                           {{"w", at::randn({channels, 2, 3, 3})}});
    const Module module = accelerate(script, Options().compile(CompileMode::kBlocking));
    const at::Tensor x = at::randn({2, 2, size, size}).contiguous(last);
    const at::Tensor expected = at::relu(at::conv2d(x, script.attr("w").toTensor()));
    for (int call = 0; call < kCalls; ++call) {
      const at::Tensor got = module.forward({x}).toTensor();
      EXPECT_EQ(got.strides(), expected.strides()) << channels << " channels, call " << call;
      EXPECT_TRUE(at::allclose(got, expected, 1e-4, 1e-4));
    }
  }
}

// Every call raises what LibTorch raises for such bounds.
TEST(ClampedConvolutions, RejectBounds) {
  const at::NoGradGuard no_grad;
  for (const std::string call :
       {"torch.clamp(y, None, None)", "torch.clamp(y, 0.0, 1e300)", "torch.hardtanh(y, 0, -1e39)"}) {
    const std::string methods = "def forward(self, x):\n    y = torch.conv2d(x, self.weight)\n    return " + call + "\n";
    torch::jit::Module script = testing::module_of(methods, {{"weight", at::randn({16, 4, 1, 1})}});
    Module module = accelerate(script, Options().compile(CompileMode::kBlocking));
    const at::Tensor x = at::randn({1, 4, 5, 5});
    const std::string wanted = testing::message_of([&] { script.forward({x}); });
    for (int i = 0; i < kCalls; ++i) {
      const std::string got = testing::message_of([&] { module.forward({x}); });
      EXPECT_EQ(got.empty(), wanted.empty()) << call;
      EXPECT_THAT(wanted, ::testing::HasSubstr(got.substr(0, std::min<size_t>(got.find(" (in"), 40)))) << call;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Clamps, ClampedConvolution,
                         ::testing::Values("torch.relu(y)", "torch.relu6(y)", "torch.relu_(y)", "torch.clamp(y, -0.5, 0.75)",
                                           "torch.clamp(y, min=-1)", "torch.clamp(y, max=0.5)", "torch.clamp(y, 1.0, -1.0)",
                                           "torch.clamp(y, 0, float('nan'))", "torch.hardtanh(y, -2, 0.25)",
                                           "torch.relu(y) * y", "torch.relu(y) + 1"));

}  // namespace
}  // namespace sconce
