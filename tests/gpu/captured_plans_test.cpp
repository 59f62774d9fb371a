// Plans that capture ranges of their steps, on a real GPU: what tests/cuda_graphs shows on the simulated one.
#include "tests/gpu/need_gpu.h"
#include "tests/support/graphs.h"
#include "tests/support/model_files.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/deep_copy.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

namespace sconce {
namespace {

const c10::Device kFirstGpu(at::kCUDA, 0);

uint64_t replays_of(const Explanation& explanation) {
  uint64_t replays = 0;
  const auto add = [&](const auto& self, const PlanExplanation& plan) -> void {
    for (const RecordedExplanation& range : plan.recorded) {
      replays += range.replays;
    }
    if (plan.gradients) {
      for (const DifferentiableExplanation& subgraph : plan.gradients->subgraphs) {
        for (const PlanExplanation& own : subgraph.plans) {
          self(self, own);
        }
      }
    }
  };
  for (const PlanExplanation& plan : explanation.plans) {
    add(add, plan);
  }
  return replays;
}

at::Tensor sum_of_floating(const c10::IValue& value) {
  at::Tensor sum;
  value.visit([&](const c10::IValue& each) {
    if (each.isTensor() && each.toTensor().defined() && each.toTensor().requires_grad()) {
      const at::Tensor part = at::abs(each.toTensor()).sum();
      sum = sum.defined() ? sum + part : part;
    }
    return false;
  });
  return sum;
}

class GpuCapturedPlansTest : public GpuTest {};

// Without models, nothing below compares much.
TEST_F(GpuCapturedPlansTest, HaveModels) {
  EXPECT_FALSE(testing::model_names().empty()) << "there are no models in " << testing::models_dir();
}

class GpuModelTest : public GpuTest, public ::testing::WithParamInterface<std::string> {};

// The model gives LibTorch's results and gradients on the device, in calls 1 to 5.
TEST_P(GpuModelTest, AgreesWithLibTorch) {
  const std::string& name = GetParam();
  const auto read = cli::read_cases(testing::cases_file(name));
  const auto* const cases = std::get_if<cli::ModelCases>(&read);
  if (cases == nullptr) {
    GTEST_SKIP() << "the model has no cases of its own";
  }
  torch::jit::Module peer = torch::jit::load(testing::model_file(name), kFirstGpu);
  const torch::jit::Module copy = peer.deepcopy();
  Module module = accelerate(copy, Options().compile(CompileMode::kBlocking));
  for (int call = 1; call <= 5; ++call) {
    const std::string where = "call " + std::to_string(call);
    c10::IValue expected;
    at::manual_seed(cases->seed);
    try {
      expected = peer.get_method(cases->method)(cli::deep_copy_to(cases->inputs[0], kFirstGpu));
    } catch (const std::exception& error) {
      GTEST_SKIP() << "LibTorch cannot run it there: " << error.what();
    }
    at::manual_seed(cases->seed);
    const c10::IValue found = module.run_method(cases->method, cli::deep_copy_to(cases->inputs[0], kFirstGpu));
    const auto mismatches = cli::compare(found, expected, {cases->rtol, cases->atol, true});
    EXPECT_TRUE(mismatches.empty()) << where << ": " << to_string(mismatches.front());
    const at::Tensor loss = sum_of_floating(found);
    const at::Tensor wanted = sum_of_floating(expected);
    ASSERT_EQ(loss.defined(), wanted.defined()) << where;
    if (!loss.defined()) {
      continue;
    }
    loss.backward();
    wanted.backward();
    auto parameter = peer.parameters().begin();
    for (const at::Tensor& own : module.parameters()) {
      const at::Tensor gradient = (*parameter).grad();
      ++parameter;
      EXPECT_EQ(own.grad().defined(), gradient.defined()) << where;
      EXPECT_TRUE(!gradient.defined() || at::allclose(own.grad(), gradient, 1e-2, 1e-3)) << where;
    }
  }
  RecordProperty("replays", static_cast<int>(replays_of(module.method(cases->method).explain())));
  std::printf("%s: %d replays\n", name.c_str(), static_cast<int>(replays_of(module.method(cases->method).explain())));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuModelTest);  // HaveModels fails
INSTANTIATE_TEST_SUITE_P(Models, GpuModelTest, ::testing::ValuesIn(testing::model_names()),
                         [](const auto& each) { return each.param; });

torch::jit::Module make_perceptron() {
  torch::jit::Module network("Perceptron");
  network.register_parameter("w", at::randn({64, 64}) * 0.1, false);
  network.register_parameter("b", at::zeros({64}), false);
  network.define(R"(
    def forward(self, x):
        for i in range(4):
            x = torch.tanh(torch.linear(x, self.w, self.b)) * 1.5
        return x
  )");
  return network;
}

TEST_F(GpuCapturedPlansTest, TwoForwardsBeforeABackward) {
  torch::jit::Module network = make_perceptron();
  network.to(kFirstGpu);
  Module module = accelerate(network.deepcopy(), Options().compile(CompileMode::kBlocking));
  for (at::Tensor parameter : module.parameters()) {
    parameter.requires_grad_();
  }
  for (at::Tensor parameter : network.parameters()) {
    parameter.requires_grad_();
  }
  for (int call = 0; call < 6; ++call) {
    const at::Tensor first = at::randn({8, 64}, kFirstGpu);
    const at::Tensor second = at::randn({8, 64}, kFirstGpu);
    const at::Tensor y = module.forward({first}).toTensor();
    const at::Tensor z = module.forward({second}).toTensor();
    (y.sum() + 2 * z.sum()).backward();
    const at::Tensor expected = network.forward({first}).toTensor();
    EXPECT_TRUE(at::allclose(y, expected, 1e-4, 1e-5)) << "call " << call;
    (expected.sum() + 2 * network.forward({second}).toTensor().sum()).backward();
    auto wanted = network.parameters().begin();
    for (const at::Tensor& parameter : module.parameters()) {
      EXPECT_TRUE(at::allclose(parameter.grad(), (*wanted).grad(), 1e-3, 1e-4)) << "call " << call;
      ++wanted;
    }
  }
}

TEST_F(GpuCapturedPlansTest, MemoryStaysFlat) {
  const at::NoGradGuard no_grad;
  torch::jit::Module network = make_perceptron();
  network.to(kFirstGpu);
  Module module = accelerate(network, Options().compile(CompileMode::kBlocking));
  size_t used = 0;
  for (int round = 0; round < 100; ++round) {
    for (int64_t rows = 1; rows <= 12; ++rows) {
      for (int call = 0; call < 4; ++call) {
        module.forward({at::randn({rows, 64}, kFirstGpu)});
      }
    }
    runtime_->synchronize(0);
    const size_t now = runtime_->used_bytes(0);
    used = round == 4 ? now : used;
    if (round > 4) {
      ASSERT_LE(now, used + (size_t{64} << 20)) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace sconce
