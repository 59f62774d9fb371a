// Options::exact: the bits of eager execution, on every processor. CTest runs this file under several settings of MKL and
// LibTorch, because each multiplies matrices and takes roots in its own way.
#include <sconce/module.h>

#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>

namespace sconce {
namespace {

using testing::module_of;

// Compares three calls of a method without gradients with eager execution, bit by bit: a call on the generic plan, one for
// which a specialized plan and kernels are compiled, and one on those.
void expect_same_bits(const char* forward, const std::vector<std::pair<std::string, c10::IValue>>& attributes,
                      const std::vector<c10::IValue>& arguments, const std::function<at::Tensor()>& eager) {
  const at::NoGradGuard no_grad;
  for (const CompileMode compile : {CompileMode::kNever, CompileMode::kBlocking}) {
    const Module module = accelerate(module_of(forward, attributes), Options().exact(true).compile(compile));
    for (int call = 1; call <= 3; ++call) {
      const at::Tensor got = module.forward(arguments).toTensor();
      const at::Tensor expected = eager();
      ASSERT_EQ(got.sizes(), expected.sizes());
      EXPECT_EQ(got.ne(expected).sum().item<int64_t>(), 0)
          << forward << " in call " << call << ", of " << expected.numel() << " elements";
    }
  }
}

at::Tensor parameter(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(true); }

// LibTorch's linear multiplies one large matrix if a view of the weights requires a gradient.
TEST(Exact, LinearOnTransposedOperands) {
  at::manual_seed(1);
  for (const auto& [sizes, units] : {std::pair<std::vector<int64_t>, int64_t>{{2, 2, 10}, 8}, {{3, 5, 100}, 64}}) {
    const at::Tensor w = parameter({units, sizes.back()});
    const at::Tensor b = parameter({units});
    const at::Tensor x = at::randn(sizes);
    expect_same_bits("def forward(self, x):\n  return torch.linear(x.transpose(0, 1), self.w, self.b)\n",
                     {{"w", w}, {"b", b}}, {x}, [&] { return at::linear(x.transpose(0, 1), w, b); });
  }
}

// Its recurrent layers do the same inside. Of such small matrices a product of LibTorch's own loop replaces MKL's.
TEST(Exact, RecurrentLayersWithParameters) {
  at::manual_seed(2);
  constexpr int64_t kInputs = 10;
  constexpr int64_t kUnits = 4;
  const std::vector<at::Tensor> weights = {parameter({3 * kUnits, kInputs}), parameter({3 * kUnits, kUnits}),
                                           parameter({3 * kUnits}), parameter({3 * kUnits})};
  const at::Tensor x = at::randn({2, 7, kInputs});
  const at::Tensor h = at::zeros({1, 2, kUnits});
  expect_same_bits(
      "def forward(self, x, h):\n"
      "  return torch.gru(x, h, [self.a, self.b, self.c, self.d], True, 1, 0.0, False, False, True)[0]\n",
      {{"a", weights[0]}, {"b", weights[1]}, {"c", weights[2]}, {"d", weights[3]}}, {x, h}, [&] {
        return std::get<0>(at::gru(x, h, weights, /*has_biases=*/true, /*num_layers=*/1, /*dropout=*/0.0, /*train=*/false,
                                   /*bidirectional=*/false, /*batch_first=*/true));
      });
}

// MKL's square root is not the processor's.
TEST(Exact, SquareRoots) {
  at::manual_seed(3);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor x = at::randn({100'000}, dtype);
    expect_same_bits("def forward(self, x):\n  return torch.sqrt(x * x + 1.0) * 2.0\n", {}, {x},
                     [&] { return at::sqrt(x * x + 1.0) * 2.0; });
    expect_same_bits("def forward(self, x):\n  return torch.pow(x * x + 1.0, 0.5) * 2.0\n", {}, {x},
                     [&] { return at::pow(x * x + 1.0, 0.5) * 2.0; });
    expect_same_bits("def forward(self, x):\n  return torch.rsqrt(x * x + 1.0) * 2.0\n", {}, {x},
                     [&] { return at::rsqrt(x * x + 1.0) * 2.0; });
  }
}

// Kernels call functions of one element where LibTorch has others for vectors.
TEST(Exact, FunctionsOfOneElement) {
  at::manual_seed(4);
  const at::Tensor x = at::rand({10'000}) * 3 + 1;
  expect_same_bits("def forward(self, x):\n  return torch.acosh(x * 1.5) * torch.asinh(x) + torch.i0(x)\n", {}, {x},
                   [&] { return at::acosh(x * 1.5) * at::asinh(x) + at::i0(x); });
}

}  // namespace
}  // namespace sconce
