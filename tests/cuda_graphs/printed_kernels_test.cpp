// The printed text of kernels, compiled for the CPU: functions of many dtypes, sizes and layouts beside ATen. With
// SCONCE_PRINTED_KERNELS in the environment, all tests of the simulated GPU run the text. With SCONCE_KERNEL_TEXTS, these
// write it to that folder, for bench/machine_code.py.
#include "tests/cuda_graphs/module_on_both.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

struct PrintedCase {
  const char* name;
  const char* parameters;
  const char* body;  // lines after the first are indented
  std::function<std::vector<at::Tensor>()> make;
  double tolerance = 1e-5;
};

void PrintTo(const PrintedCase& each, std::ostream* out) { *out << each.name; }

at::Tensor random_of(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) { return at::randn(sizes).to(dtype); }

const std::vector<PrintedCase>& printed_cases() {
  static const std::vector<PrintedCase> cases = {
      {"products_of_floats", "x, y", "return x * y + x",
       [] { return std::vector{random_of({64, 256}), random_of({64, 256})}; }},
      {"products_of_bfloat16", "x, y", "return x * y + x",
       [] { return std::vector{random_of({64, 256}, at::kBFloat16), random_of({64, 256}, at::kBFloat16)}; }, 2e-2},
      {"products_of_float16", "x, y", "return x * y + x",
       [] { return std::vector{random_of({64, 256}, at::kHalf), random_of({64, 256}, at::kHalf)}; }, 2e-3},
      {"a_bias", "x, b", "return torch.relu(x + b) * 2", [] { return std::vector{random_of({33, 769}), random_of({769})}; }},
      {"a_bias_of_channels", "x, b", "return torch.relu(x + b) * 2",
       [] { return std::vector{random_of({2, 8, 14, 14}), random_of({8, 1, 1})}; }},
      {"no_alignment", "x", "return torch.relu(x[1:] * 2) + 1", [] { return std::vector{random_of({8193})}; }},
      {"columns", "x", "return torch.relu(x.t() * 2) + 1", [] { return std::vector{random_of({96, 72})}; }},
      {"gelu", "x", "return torch.gelu(x * 3) + 1", [] { return std::vector{random_of({64, 128})}; }},
      {"gelu_of_bfloat16", "x, b", "return torch.gelu(x + b)",
       [] { return std::vector{random_of({64, 128}, at::kBFloat16), random_of({128}, at::kBFloat16)}; }, 2e-2},
      {"gelu_by_tanh", "x", "return torch.gelu(x * 1.5, approximate='tanh')",
       [] { return std::vector{random_of({64, 128})}; }},
      {"functions", "x",
       "return torch.sigmoid(x) * torch.tanh(x) + torch.erf(x) + torch.log1p(x.abs()) + torch.rsqrt(x * x + 1)",
       [] { return std::vector{random_of({50, 33})}; }},
      {"doubles", "x", "return torch.exp(x) * torch.sin(x)", [] { return std::vector{random_of({30, 41}, at::kDouble)}; },
       1e-12},
      {"integers", "x, i", "return x * (i % 7).float() + 1",
       [] { return std::vector{random_of({100, 33}), at::randint(0, 1000, {100, 33})}; }},
      {"masks", "x, m", "return torch.softmax(torch.where(m > 0, x, -1e9), -1)",
       [] { return std::vector{random_of({4, 16, 128}), random_of({4, 1, 128})}; }},
      {"softmax_of_64", "x", "return torch.softmax(x * 0.125, -1)", [] { return std::vector{random_of({37, 64})}; }},
      {"softmax_of_1000", "x", "return torch.softmax(x * 0.125, -1)", [] { return std::vector{random_of({5, 1000})}; }},
      {"softmax_of_bfloat16", "x", "return torch.softmax(x * 0.125, -1)",
       [] { return std::vector{random_of({5, 1024}, at::kBFloat16)}; }, 2e-2},
      {"log_softmax_of_long_rows", "x", "return torch.log_softmax(x * 1.25, -1)",
       [] { return std::vector{random_of({2, 50257})}; }, 1e-4},
      {"layer_norm", "x, r, w, b", "return torch.layer_norm(x + r, [768], w, b)",
       [] { return std::vector{random_of({9, 768}), random_of({9, 768}), random_of({768}), random_of({768})}; }, 1e-4},
      {"layer_norm_of_bfloat16", "x, w, b", "return torch.layer_norm(x * 2, [1024], w, b)",
       [] {
         return std::vector{random_of({9, 1024}, at::kBFloat16), random_of({1024}, at::kBFloat16),
                            random_of({1024}, at::kBFloat16)};
       },
       5e-2},
      {"rms_norm", "x, w",
       "y = x.float()\n    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w",
       [] { return std::vector{random_of({3, 4096}, at::kBFloat16), random_of({4096}, at::kBFloat16)}; }, 5e-2},
      {"norm_of_odd_rows", "x", "return torch.layer_norm(x * 2, [193])", [] { return std::vector{random_of({11, 193})}; },
       1e-4},
      {"sum_of_rows", "x", "return (x * x).sum(-1)", [] { return std::vector{random_of({25, 1000})}; }, 1e-4},
      {"sum_of_columns", "x", "return (x * x).sum(0)", [] { return std::vector{random_of({300, 96})}; }, 1e-4},
      {"sum_of_all", "x", "return (x * x).sum()", [] { return std::vector{random_of({64, 1000})}; }, 1e-3},
      {"mean_of_planes", "x", "return torch.relu(x).mean([2, 3])", [] { return std::vector{random_of({4, 16, 7, 7})}; },
       1e-4},
      {"sum_of_channels", "x", "return (x * 2).sum([0, 2, 3])", [] { return std::vector{random_of({4, 8, 14, 14})}; }, 1e-3},
      {"largest_of_rows", "x", "return (x * 2).amax(-1) - (x * 2).amin(-1)",
       [] { return std::vector{random_of({20, 333})}; }},
  };
  return cases;
}

void write_texts(const std::string& name, SimulatedGpu& gpu) {
  const char* const folder = std::getenv("SCONCE_KERNEL_TEXTS");
  if (folder == nullptr) {
    return;
  }
  int number = 0;
  for (const auto& kernel : gpu.kernels().kernels()) {
    std::ofstream(std::string(folder) + "/" + name + "_" + std::to_string(number++) + ".cu") << kernel->text();
  }
}

class PrintedKernels : public ::testing::TestWithParam<PrintedCase> {};

TEST_P(PrintedKernels, ComputeWhatAtenComputes) {
  const PrintedCase& each = GetParam();
  SimulatedGpu gpu(SimulatedGpu::Kernels::kPrinted);
  const std::string source = std::string("def forward(self, ") + each.parameters + "):\n    " + each.body + "\n";
  torch::jit::Module theirs = module_of(source);
  const Module ours = accelerate(module_of(source), Options().compile(CompileMode::kBlocking));
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  std::vector<c10::IValue> on_cpu;
  std::vector<c10::IValue> on_gpu;
  for (const at::Tensor& tensor : each.make()) {
    on_cpu.emplace_back(tensor);
    on_gpu.emplace_back(gpu.tensor(tensor));
  }
  const at::Tensor expected = theirs.forward(on_cpu).toTensor();
  for (int call = 0; call < 2; ++call) {
    const at::Tensor found = gpu.values(ours.forward(on_gpu).toTensor());
    EXPECT_EQ(found.scalar_type(), expected.scalar_type());
    EXPECT_TRUE(at::allclose(found.to(at::kDouble), expected.to(at::kDouble), each.tolerance, each.tolerance))
        << (found.to(at::kDouble) - expected.to(at::kDouble)).abs().max();
  }
  EXPECT_GT(gpu.driver_calls("launch_kernel"), 0U);
  EXPECT_TRUE(gpu.driver().misuse().empty());
  write_texts(each.name, gpu);
}

INSTANTIATE_TEST_SUITE_P(Functions, PrintedKernels, ::testing::ValuesIn(printed_cases()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sconce::testing
