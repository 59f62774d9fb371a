// NaN, infinities, -0 and subnormal numbers in one operand of a chain of operators: products with packed weights, and what
// kernels compute, each after each other. LibTorch is the oracle, in the first six calls.
#include <sconce/module.h>

#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

constexpr int64_t kSpecialRows = 8;
constexpr int64_t kSpecialColumns = 36;
constexpr int kSpecialCalls = 6;
constexpr double kSpecialTolerance = 1e-4;

// Takes y, of kSpecialRows rows, and gives as much. X is the argument, W, V weights of kSpecialColumns x kSpecialColumns and
// x kSpecialRows, B of a row.
// None shows the sign of NaN, as copysign(X, y) would: processors and libraries choose it.
constexpr std::array kOperators = {
    // with weights, which are packed
    "torch.linear(y, W, B)",
    "torch.linear(y, W)",
    "torch.mm(y, W)",
    "torch.matmul(y, W)",
    "torch.addmm(B, y, W)",
    "torch.addmm(X, y, W, beta=0.5, alpha=2)",
    "torch.matmul(V, y)",
    "torch.matmul(y.view(2, 4, 36), W).view(8, 36)",
    "torch.conv2d(y.view(1, 8, 6, 6), self.c3, self.c, [1, 1], [1, 1]).view(8, 36)",
    "torch.conv2d(y.view(1, 8, 6, 6), self.c1).view(8, 36)",
    "torch.conv2d(y.view(1, 8, 6, 6), self.d3, self.c, [1, 1], [1, 1], [1, 1], 8).view(8, 36)",
    "torch.relu(torch.conv2d(y.view(2, 4, 6, 6), self.e3, None, [1, 1], [1, 1])).view(8, 36)",
    "torch.conv1d(y.view(1, 8, 36), self.c3[:, :, 0], self.c, [1], [1]).view(8, 36)",
    "torch.lstm_cell(y, [X, y], self.ih, self.hh)[0]",
    "torch.gru_cell(y, X, self.ih[:108], self.hh[:108])",
    "torch.rnn_tanh_cell(y, X, W, W)",
    "torch.scaled_dot_product_attention(y, X, y)",
    "torch.scaled_dot_product_attention(y, y, X, X[:, :8] > 0.4)",
    "torch.bmm(y.view(2, 4, 36), self.b3).view(8, 36)",
    "torch.einsum('ij,jk->ik', [y, W])",
    // of elements
    "torch.relu(y)",
    "torch.sigmoid(y)",
    "torch.tanh(y)",
    "torch.gelu(y)",
    "torch.gelu(y, approximate='tanh')",
    "torch.silu(y)",
    "torch.hardtanh(y)",
    "torch.hardswish(y)",
    "torch.hardsigmoid(y)",
    "torch.leaky_relu(y, 0.1)",
    "torch.elu(y)",
    "torch.selu(y)",
    "torch.celu(y)",
    "torch.softplus(y)",
    "torch.mish(y)",
    "torch.log_sigmoid(y)",
    "torch.exp(y)",
    "torch.log(y)",
    "torch.sqrt(y)",
    "torch.rsqrt(y)",
    "torch.abs(y)",
    "-y",
    "torch.reciprocal(y)",
    "torch.sin(y)",
    "torch.cos(y)",
    "torch.erf(y)",
    "torch.log1p(y)",
    "torch.expm1(y)",
    "torch.clamp(y, -1.0, 1.0)",
    "torch.clamp(y, min=0.25)",
    "torch.clamp(y, max=X)",
    "torch.threshold(y, 0.1, -2.0)",
    "torch.nan_to_num(y, 0.0, 100.0, -100.0)",
    "torch.where(y > 0, y, -X)",
    "torch.where(y != y, X, y)",
    "y.masked_fill(X > 0.4, -1024.0)",
    "y.masked_fill(X > 0.4, float('-inf'))",
    "torch.maximum(y, X)",
    "torch.minimum(y, X)",
    "torch.fmax(y, X)",
    "y * y",
    "y + X",
    "X - y",
    "y / X",
    "X / y",
    "y * 0.5 + B",
    "torch.floor_divide(y, 2.0)",
    "torch.remainder(y, 2.0)",
    "torch.fmod(y, X)",
    "torch.pow(y, 2)",
    "torch.pow(y, 0.5)",
    "torch.pow(2.0, y)",
    "torch.pow(y, X)",
    "torch.atan2(y, X)",
    "torch.lerp(y, X, 0.3)",
    "torch.addcmul(y, X, y)",
    "torch.addcdiv(y, X, y)",
    "torch.sign(y)",
    "torch.floor(y)",
    "torch.round(y)",
    "torch.trunc(y)",
    "torch.isnan(y).to(X)",
    "torch.isfinite(y) * X",
    "torch.copysign(y, X)",
    "torch.hypot(y, X)",
    "torch.logaddexp(y, X)",
    "torch.xlogy(X, y)",
    "torch.heaviside(y, X)",
    "y.to(15).to(X)",
    "y.to(7).mul(2).to(X)",
    "torch.logical_not(y).to(X)",
    "(y == X) * y",
    "(y <= X).to(X) + y",
    // of rows
    "torch.softmax(y, -1)",
    "torch.log_softmax(y, -1)",
    "torch.softmax(y, 0)",
    "torch.layer_norm(y, [36], B, B)",
    "torch.layer_norm(y, [36])",
    "torch.group_norm(y.view(1, 8, 36), 4).view(8, 36)",
    "torch.batch_norm(y.view(8, 36), B, B, B, self.v, False, 0.1, 1e-5, False)",
    "y + y.sum(-1, True)",
    "y - y.mean(-1, True)",
    "y * torch.rsqrt((y * y).mean(-1, True) + 1e-6)",
    "y / y.norm(2, -1, True)",
    "y - y.amax(-1, True)",
    "y - torch.max(y, -1, True)[0]",
    "y + y.amin(0, True)",
    "y * torch.var(y, [1], unbiased=False, keepdim=True)",
    "y + y.argmax(-1, True)",
    "torch.cumsum(y, -1)",
    "torch.logsumexp(y, -1, True) + y",
    "y + y.prod(0, True)",
    "y * (y > 0).any(-1, True)",
    "torch.max_pool2d(y.view(1, 8, 6, 6), [3, 3], [1, 1], [1, 1]).view(8, 36)",
    "torch.avg_pool2d(y.view(1, 8, 6, 6), [3, 3], [1, 1], [1, 1]).view(8, 36)",
    "torch.adaptive_avg_pool2d(y.view(1, 8, 6, 6), [1, 1]).view(8, 1) + y",
    "torch.cat([y[:, 18:], X[:, :18]], 1)",
    "torch.glu(torch.cat([y, X], 1), 1)",
    "y.t().contiguous().view(8, 36)",
    "torch.flip(y, [1])",
    "y[:, :18].repeat(1, 2)",
};

// Small multiples of a power of two: products and sums of them are exact, so that no order of adding matters.
at::Tensor multiples(c10::IntArrayRef sizes, double unit) { return at::randint(-2, 3, sizes, at::kFloat) * unit; }

class SpecialProgram {
 public:
  explicit SpecialProgram(uint64_t seed, std::vector<size_t> chain) : random_(seed) {
    at::manual_seed(seed);
    attributes_ = {{"w", multiples({kSpecialColumns, kSpecialColumns}, 0.125)},
                   {"r", multiples({kSpecialRows, kSpecialRows}, 0.25)},
                   {"b", multiples({kSpecialColumns}, 0.5)},
                   {"c", multiples({kSpecialRows}, 0.5)},
                   {"c3", multiples({kSpecialRows, kSpecialRows, 3, 3}, 0.125)},
                   {"c1", multiples({kSpecialRows, kSpecialRows, 1, 1}, 0.25)},
                   {"d3", multiples({kSpecialRows, 1, 3, 3}, 0.25)},
                   {"e3", multiples({4, 4, 3, 3}, 0.25)},
                   {"ih", multiples({4 * kSpecialColumns, kSpecialColumns}, 0.125)},
                   {"hh", multiples({4 * kSpecialColumns, kSpecialColumns}, 0.125)},
                   {"b3", multiples({2, kSpecialColumns, kSpecialColumns}, 0.125)},
                   {"v", at::rand({kSpecialColumns}) + 0.5}};
    x_ = multiples({kSpecialRows, kSpecialColumns}, 0.5);
    std::vector<at::Tensor> operands = {x_, x_, x_};
    text_ = "def forward(self, x):\n    y = x * 1.0\n";
    for (const size_t each : chain) {
      std::string call = kOperators[each];
      for (const auto& [letter, value] : {std::pair("X", "x"), {"W", "self.w"}, {"V", "self.r"}, {"B", "self.b"}}) {
        for (size_t at = 0; (at = call.find(letter, at)) != std::string::npos; ++at) {
          call.replace(at, 1, value);
        }
      }
      for (const auto& [name, tensor] : attributes_) {
        const size_t at = call.find("self." + name);
        // Convolutions of LibTorch differ in what padding times infinity is.
        const bool is_padded = name == "c3" || name == "d3" || name == "e3";
        if (at != std::string::npos && !is_padded &&
            std::isalnum(static_cast<unsigned char>(call[at + 5 + name.size()])) == 0) {
          operands.push_back(tensor.toTensor());
        }
      }
      text_ += "    y = " + call + "\n";
    }
    text_ += "    return y\n";
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr std::array kSpecial = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, -0.0F};
    if (random_() % 5 == 0) {
      special_ = 0x1p-140F;  // beside larger numbers, the order of adding would tell whether a subnormal one is lost
      x_.copy_(multiples(x_.sizes(), special_));
      return;
    }
    const at::Tensor operand = operands[random_() % operands.size()];
    for (int i = 0; i < 2; ++i) {
      special_ = kSpecial[random_() % kSpecial.size()];
      operand.data_ptr<float>()[random_() % static_cast<uint64_t>(operand.numel())] = special_;
    }
  }

  void check() {
    const at::NoGradGuard no_grad;
    torch::jit::Module script = module_of(text_, attributes_);
    script.eval();
    const at::Tensor expected = script.get_method("forward")({x_}).toTensor();
    // Where rounding decides, as at the root of a sum that cancels out or the floor of a mean, another order of adding may
    // give anything.
    torch::jit::Module wide = script.deepcopy();
    wide.to(at::kDouble);
    const at::Tensor noise = at::randn_like(x_, at::kDouble) * 1e-6;
    // What a norm or a mean leaves of a number that equals the mean is rounding alone, zeros among them.
    const bool centers = text_.find("norm") != std::string::npos || text_.find("mean") != std::string::npos;
    const at::Tensor of_zeros = centers ? noise : at::zeros_like(noise);
    const auto with_noise = [&](double sign) {  // both signs: a mean moves up, and down
      const at::Tensor x = x_.to(at::kDouble);
      return wide.get_method("forward")({x * (1 + sign * noise) + sign * of_zeros}).toTensor().to(at::kFloat);
    };
    const auto agrees = [&](const at::Tensor& other) {
      return at::isclose(expected, other, kSpecialTolerance, kSpecialTolerance, /*equal_nan=*/true);
    };
    const at::Tensor is_settled =
        agrees(with_noise(0)).logical_and(agrees(with_noise(1))).logical_and(agrees(with_noise(-1)));
    settled_ = is_settled.to(at::kFloat).mean().item<double>();
    for (const bool frozen : {false, true}) {
      const Module module = accelerate(script, Options().compile(CompileMode::kBlocking).frozen(frozen));
      for (int call = 1; call <= kSpecialCalls; ++call) {
        const at::Tensor got = module.forward({x_}).toTensor();
        ASSERT_TRUE(agree(at::where(is_settled, got, expected), expected, kSpecialTolerance))
            << text_ << special_ << ", call " << call << (frozen ? ", frozen" : "");
      }
    }
  }

  // Returns the share of elements that were compared.
  double settled() const { return settled_; }

 private:
  double settled_ = 0;
  std::mt19937_64 random_;
  std::vector<std::pair<std::string, c10::IValue>> attributes_;
  at::Tensor x_;
  std::string text_;
  float special_ = 0;
};

// SCONCE_SPECIAL_VALUES: how many pairs and chains; 20000 are all pairs and more.
TEST(SpecialValues, StayWhatTheyAre) {
  const uint64_t count = environment_number("SCONCE_SPECIAL_VALUES", 300);
  constexpr uint64_t kPairs = kOperators.size() * kOperators.size();
  std::mt19937_64 random(environment_number("SCONCE_SEED", 1));
  double settled = 0;
  for (uint64_t i = 0; i < count && !HasFatalFailure(); ++i) {
    const uint64_t pair = i < kPairs && count >= kPairs ? i : random() % kPairs;
    std::vector<size_t> chain = {pair / kOperators.size(), pair % kOperators.size()};
    if (i % 3 == 2) {
      chain.push_back(random() % kOperators.size());
    }
    SpecialProgram program(random(), chain);
    program.check();
    settled += program.settled();
  }
  EXPECT_GE(settled, 0.9 * static_cast<double>(count));
}

}  // namespace
}  // namespace sconce::testing
