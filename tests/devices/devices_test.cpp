// Plans on a second kind of device: what the interface to devices has defaults for is optional, and no code outside asks for
// CUDA.
#include "tests/devices/toy_device.h"
#include "tests/support/graphs.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;

// Groups with reductions and views, products, an operator in place, a loop and a branch.
constexpr const char* kNetwork = R"(
def forward(self, x, n: int):
    h = torch.linear(x, self.w, self.b)
    for i in range(n):
        h = torch.softmax(torch.tanh(h * 0.5 + self.b), -1) + h.t().t()
    if bool(h.sum() > 0):
        h = torch.relu(h) * 2
    y = h + 1
    y.mul_(h.mean(dim=1, keepdim=True))
    return y, y.sum()
)";

// Its parameters are made on the device: `Module::to` moves none to a PrivateUse1.
torch::jit::Module network(c10::Device device) {
  at::manual_seed(3);
  const at::Tensor w = at::randn({8, 6});
  const at::Tensor b = at::randn({8});
  return module_of(kNetwork, {{"w", w.to(device).requires_grad_()}, {"b", b.to(device).requires_grad_()}});
}

std::vector<at::Tensor> results_of(const c10::IValue& tuple) {
  std::vector<at::Tensor> results;
  for (const c10::IValue& element : tuple.toTupleRef().elements()) {
    results.push_back(element.toTensor());
  }
  return results;
}

std::string refusals_of(const Explanation& explanation) {
  std::string text;
  for (const RefusalExplanation& refusal : explanation.refusals) {
    text += refusal.what + ": " + refusal.reason + "\n";
  }
  return text;
}

// Why ranges of steps were not recorded, in all plans.
std::string why_unrecorded(const Explanation& explanation) {
  std::string text;
  for (const PlanExplanation& plan : explanation.plans) {
    for (const RecordedExplanation& range : plan.recorded) {
      for (const RecordedExplanation::Unrecorded& each : range.unrecorded) {
        text += each.reason + "\n";
      }
    }
  }
  return text;
}

class Devices : public ::testing::Test {
 protected:
  // Calls both modules with operands of these rows, with gradients or without, and compares what they compute.
  static void expect_agreement(torch::jit::Module& on_cpu, Module& on_toy, int64_t rows, bool trains) {
    const c10::AutoGradMode mode(trains);
    at::manual_seed(static_cast<uint64_t>(rows));
    const at::Tensor x = at::randn({rows, 6});
    const std::vector<at::Tensor> expected = results_of(on_cpu.forward({x, 2}));
    const std::vector<at::Tensor> got = results_of(on_toy.forward({x.to(kToy), 2}));
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].device(), kToy);
      EXPECT_TRUE(at::allclose(got[i].to(at::kCPU), expected[i], 1e-4, 1e-5)) << "result " << i;
    }
    if (!trains) {
      return;
    }
    expected[1].backward();
    got[1].backward();
    for (const auto& parameter : on_cpu.named_parameters()) {
      const at::Tensor gradient = on_toy.script_module().attr(parameter.name).toTensor().grad();
      ASSERT_TRUE(gradient.defined()) << parameter.name;
      EXPECT_TRUE(at::allclose(gradient.to(at::kCPU), parameter.value.grad(), 1e-3, 1e-4)) << parameter.name;
    }
  }

  // The same without gradients, then with them, for operands of each of these rows in turn.
  static void expect_agreement_of_calls(torch::jit::Module& on_cpu, Module& on_toy, const std::vector<int64_t>& all_rows) {
    for (const bool trains : {false, true}) {
      for (const int64_t rows : all_rows) {
        ASSERT_NO_FATAL_FAILURE(expect_agreement(on_cpu, on_toy, rows, trains)) << rows << " rows";
      }
    }
  }

  ToyDevice device_;
};

TEST_F(Devices, RunKernelsOfTheirOwn) {
  ToyRuntime runtime(/*has_kernels=*/true);
  const DeviceRuntimeInPlace in_place(runtime);
  torch::jit::Module on_cpu = network(at::kCPU);
  Module on_toy = accelerate(network(kToy), Options().compile(CompileMode::kBlocking));
  ASSERT_NO_FATAL_FAILURE(expect_agreement_of_calls(on_cpu, on_toy, {3, 3, 7, 1, 3, 7}));
  EXPECT_GT(runtime.kernels_run(), 20U);
  EXPECT_THAT(why_unrecorded(on_toy.method("forward").explain()), HasSubstr("the device toy:0 captures nothing"));
}

TEST_F(Devices, NeedNoKernels) {
  ToyRuntime runtime(/*has_kernels=*/false);
  const DeviceRuntimeInPlace in_place(runtime);
  torch::jit::Module on_cpu = network(at::kCPU);
  Module on_toy = accelerate(network(kToy), Options().compile(CompileMode::kBlocking));
  ASSERT_NO_FATAL_FAILURE(expect_agreement_of_calls(on_cpu, on_toy, {3, 3, 3, 5}));
  EXPECT_EQ(runtime.kernels_run(), 0U);
  EXPECT_THAT(refusals_of(on_toy.method("forward").explain()), HasSubstr("sconce has no kernels for the device toy:0"));
}

TEST_F(Devices, NeedNoLibraryOfSconce) {
  torch::jit::Module on_cpu = network(at::kCPU);
  Module on_toy = accelerate(network(kToy), Options().compile(CompileMode::kBlocking));
  ASSERT_NO_FATAL_FAILURE(expect_agreement_of_calls(on_cpu, on_toy, {3, 3, 3, 5}));
  EXPECT_THAT(refusals_of(on_toy.method("forward").explain()), HasSubstr("no back end for the device 'toy'"));
}

TEST_F(Devices, RunPlansOfBackward) {
  ToyRuntime runtime(/*has_kernels=*/true);
  const DeviceRuntimeInPlace in_place(runtime);
  torch::jit::Module on_cpu = network(at::kCPU);
  Module on_toy = accelerate(network(kToy), Options().compile(CompileMode::kBlocking));
  const BackwardCache cache(Options().compile(CompileMode::kBlocking));
  for (int step = 0; step < 5; ++step) {
    const CompiledBackward compiled(cache);
    ASSERT_NO_FATAL_FAILURE(expect_agreement(on_cpu, on_toy, 3, /*trains=*/true)) << "step " << step;
  }
  EXPECT_GE(cache.explain().by_plan, 3U);
}

}  // namespace
}  // namespace sconce::testing
