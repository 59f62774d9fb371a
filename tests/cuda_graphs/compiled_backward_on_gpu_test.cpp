// sconce::CompiledBackward on the simulated GPU: gradients of LibTorch's engine on the CPU, by plans whose ranges are
// captured.
#include "tests/cuda_graphs/module_on_both.h"

#include <sconce/compiled_backward.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::IsEmpty;

// A function of an input and three parameters.
using Function = std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& w)>;

class CompiledBackwardOnGpu : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), IsEmpty()); }

  std::vector<at::Tensor> on_gpu(const std::vector<at::Tensor>& values) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& value : values) {
      copies.push_back(gpu_.tensor(value.detach()).set_requires_grad(true));
    }
    return copies;
  }

  static RangeCounts ranges_of(const BackwardExplanation& explanation) {
    RangeCounts counts;
    for (const Explanation& plan : explanation.plans) {
      const RangeCounts each = counts_of(plan).own;
      counts.ranges += each.ranges;
      counts.captures += each.captures;
      counts.replays += each.replays;
      counts.reasons += each.reasons;
    }
    for (const auto& [reason, times] : explanation.reasons) {
      counts.reasons += std::to_string(times) + " times by the engine: " + reason + "\n";
    }
    return counts;
  }

  void expect_equal(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                    const std::string& where) {
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].grad().defined(), expected[i].grad().defined()) << where << ", gradient " << i;
      if (!found[i].grad().defined()) {
        continue;
      }
      const at::Tensor values = gpu_.values(found[i].grad());
      EXPECT_TRUE(at::allclose(values, expected[i].grad(), 1e-4, 1e-5)) << where << ", gradient " << i << "\n"
                                                                        << values << "\n"
                                                                        << expected[i].grad();
    }
  }

  SimulatedGpu gpu_;
  const BackwardCache plans_{Options().compile(CompileMode::kBlocking)};
};

std::vector<at::Tensor> weights() {
  std::vector<at::Tensor> made;
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{6, 5}, {5, 5}, {5}}) {
    made.push_back((at::randn(sizes) * 0.5).set_requires_grad(true));
  }
  return made;
}

const std::vector<std::pair<const char*, Function>>& functions() {
  static const std::vector<std::pair<const char*, Function>> all = {
      {"perceptron", [](const at::Tensor& x,
                        const std::vector<at::Tensor>& w) { return at::tanh(x.mm(w[0]) + w[2]).mm(w[1]).pow(2).mean(); }},
      {"attention",
       [](const at::Tensor& x, const std::vector<at::Tensor>& w) {
         const at::Tensor h = at::layer_norm(x.mm(w[0]), {5}, w[2] + 1);
         return at::softmax(h.mm(w[1]).mm(h.t()), 1).mm(h).sigmoid().sum();
       }},
      {"loop",
       [](const at::Tensor& x, const std::vector<at::Tensor>& w) {
         at::Tensor h = x.mm(w[0]);
         for (int t = 0; t < 4; ++t) {
           h = at::tanh(h.mm(w[1])) * at::sigmoid(h + w[2]);
         }
         return h.mul(h).mean();
       }},
      {"views", [](const at::Tensor& x, const std::vector<at::Tensor>& w) {
         const at::Tensor h = x.mm(w[0]);
         return at::cat({h.slice(1, 0, 2), h.slice(1, 3, 5) * w[2].slice(0, 1, 3)}, 1).exp().mean() +
                w[1].select(0, 1).pow(3).sum();
       }}};
  return all;
}

TEST_F(CompiledBackwardOnGpu, GivesGradientsInEveryCall) {
  for (const auto& [name, function] : functions()) {
    const BackwardCache plans(Options().compile(CompileMode::kBlocking));
    const std::vector<at::Tensor> cpu = weights();
    const std::vector<at::Tensor> gpu = on_gpu(cpu);
    for (int call = 0; call < 9; ++call) {
      const at::Tensor x = at::randn({4, 6});
      if (call % 3 == 0) {  // else gradients add up
        for (size_t i = 0; i < cpu.size(); ++i) {
          cpu[i].mutable_grad() = at::Tensor();
          gpu[i].mutable_grad() = at::Tensor();
        }
      }
      function(x, cpu).backward();
      const at::Tensor loss = function(gpu_.tensor(x), gpu);
      const CompiledBackward scope(plans);
      loss.backward();
      expect_equal(gpu, cpu, std::string(name) + ", call " + std::to_string(call));
    }
    const BackwardExplanation explanation = plans.explain();
    const RangeCounts counts = ranges_of(explanation);
    EXPECT_GE(explanation.by_plan, 7U) << name << "\n" << counts.reasons;
    EXPECT_GE(counts.replays, 6U) << name << "\n" << counts.reasons;
  }
}

// Sizes are numbers in the second plan.
TEST_F(CompiledBackwardOnGpu, TakesBatchesOfSeveralSizes) {
  const Function& function = functions()[0].second;
  const std::vector<at::Tensor> cpu = weights();
  const std::vector<at::Tensor> gpu = on_gpu(cpu);
  for (int call = 0; call < 24; ++call) {
    const at::Tensor x = at::randn({2 + call % 3, 6});
    function(x, cpu).backward();
    const at::Tensor loss = function(gpu_.tensor(x), gpu);
    const CompiledBackward scope(plans_);
    loss.backward();
    expect_equal(gpu, cpu, "call " + std::to_string(call));
  }
  EXPECT_GE(ranges_of(plans_.explain()).replays, 12U) << ranges_of(plans_.explain()).reasons;
}

TEST_F(CompiledBackwardOnGpu, RunsLateAndTwice) {
  const Function& function = functions()[1].second;
  const std::vector<at::Tensor> cpu = weights();
  const std::vector<at::Tensor> gpu = on_gpu(cpu);
  for (int round = 0; round < 6; ++round) {
    std::vector<at::Tensor> expected;
    std::vector<at::Tensor> found;
    for (int call = 0; call < 3; ++call) {
      const at::Tensor x = at::randn({4, 6});
      expected.push_back(function(x, cpu));
      found.push_back(function(gpu_.tensor(x), gpu));
    }
    for (const size_t i : {1U, 0U, 2U}) {
      for (const bool retains : {true, false}) {
        expected[i].backward({}, retains);
        const CompiledBackward scope(plans_);
        found[i].backward({}, retains);
        expect_equal(gpu, cpu, "round " + std::to_string(round));
      }
    }
  }
}

// The backward nodes of sconce's forward plans run by plans, too.
TEST_F(CompiledBackwardOnGpu, RunsBackwardOfModules) {
  ModuleOnBoth both(gpu_, R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.w, self.b))
    return torch.softmax(torch.linear(h, self.v), 1) * 0.5
)",
                    {{"w", at::randn({5, 6}).set_requires_grad(true)},
                     {"b", at::randn({5}).set_requires_grad(true)},
                     {"v", at::randn({3, 5}).set_requires_grad(true)}});
  for (int call = 0; call < 9; ++call) {
    const ModuleOnBoth::Call made = both.forward({at::randn({4, 6})}, "call " + std::to_string(call));
    const CompiledBackward scope(plans_);
    both.backward(made);
    both.expect_equal_gradients(made, "call " + std::to_string(call));
    both.zero_gradients();
  }
}

}  // namespace
}  // namespace sconce::testing
