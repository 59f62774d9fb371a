// What a recorded step assumes and no argument says: hooks, anomaly mode, memory, and how a recording ends.
#include "tests/training/two_trainings.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <array>

namespace sconce::testing {
namespace {

uint64_t times_of(const TrainStep& step, const std::string& part_of_reason) {
  uint64_t times = 0;
  for (const auto& [reason, count] : step.explain().reasons) {
    times += reason.find(part_of_reason) != std::string::npos ? count : 0;
  }
  return times;
}

TEST(StepConditions, HooksOfParametersAreCalledWheneverTheyAreThere) {
  TwoTrainings both(two_layers(kMlp), sgd);
  uint64_t step = 0;
  const auto train = [&](int times) {
    for (int i = 0; i < times; ++i) {
      both.train(4, step++);
    }
  };
  train(3);
  std::array<int, 2> calls{};
  const at::Tensor ours = both.ours().attr("a_weight").toTensor();
  const at::Tensor theirs = both.theirs().attr("a_weight").toTensor();
  const auto frozen_row = [](int& count) {
    return [&count](const at::Tensor& gradient) {
      ++count;
      at::Tensor masked = gradient.clone();
      masked[2].zero_();
      return masked;
    };
  };
  const unsigned our_hook = ours.register_hook(frozen_row(calls[0]));
  const unsigned their_hook = theirs.register_hook(frozen_row(calls[1]));
  train(4);
  EXPECT_EQ(calls, (std::array<int, 2>{4, 4}));
  EXPECT_EQ(times_of(both.step(), "a parameter has hooks"), 4U);
  ours.remove_hook(our_hook);
  theirs.remove_hook(their_hook);
  train(3);
  EXPECT_EQ(calls, (std::array<int, 2>{4, 4}));
  EXPECT_EQ(both.step().explain().by_plan, 5U);  // all without hooks but the first
}

// A hook that is there in the first call does not keep later calls from being recorded.
TEST(StepConditions, NoKindIsRefusedForWhatPasses) {
  TwoTrainings both(two_layers(kMlp), sgd);
  const at::Tensor ours = both.ours().attr("a_weight").toTensor();
  const unsigned hook = ours.register_hook([](const at::Tensor& gradient) { return gradient; });
  both.train(4, 0);
  both.train(4, 1);
  ours.remove_hook(hook);
  torch::autograd::AnomalyMode::set_enabled(true);
  both.train(4, 2);
  both.train(4, 3);
  torch::autograd::AnomalyMode::set_enabled(false);
  EXPECT_EQ(both.step().explain().by_plan, 0U);
  EXPECT_EQ(times_of(both.step(), "anomaly"), 2U);
  for (uint64_t step = 4; step < 9; ++step) {
    both.train(4, step);
  }
  EXPECT_EQ(both.step().explain().by_plan, 4U) << both.step().explain().reasons.back().first;
}

// Data-parallel training registers such hooks.
TEST(StepConditions, HooksOfAccumulationAreCalled) {
  struct Count final : torch::autograd::FunctionPostHook {
    explicit Count(int& count) : calls(count) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      ++calls;
      return outputs;
    }
    int& calls;
  };
  TwoTrainings both(two_layers(kMlp), sgd);
  int calls = 0;
  for (uint64_t step = 0; step < 3; ++step) {
    both.train(4, step);
  }
  {
    const auto accumulator = torch::autograd::impl::grad_accumulator(both.ours().attr("b_weight").toTensor());
    accumulator->add_post_hook(std::make_unique<Count>(calls));
    for (uint64_t step = 3; step < 6; ++step) {
      both.train(4, step);
    }
  }
  EXPECT_EQ(calls, 3);
}

TEST(StepConditions, MemoryThatNobodyOwnsIsReadInEachCall) {
  TwoTrainings both(two_layers(kMlp), sgd, {}, [](const at::Tensor& y, const at::Tensor& target) {
    std::vector<float> weights = {1, 2, 3, 4, 5, 6, 7, 8};
    return ((y - target).pow(2) * at::from_blob(weights.data(), {8}).clone()).mean();
  });
  for (uint64_t step = 0; step < 5; ++step) {
    both.train(4, step);
  }
  EXPECT_EQ(both.step().explain().by_plan, 0U);
  EXPECT_GE(times_of(both.step(), "memory that no tensor owns"), 1U);
}

// As when weights lie in a file that the program maps.
TEST(StepConditions, TheModulesOwnMemoryMayBeOfTheCallers) {
  std::vector<float> mean(8, 0.5F);
  std::vector<float> variance(8, 2.0F);
  torch::jit::Module module = two_layers(kNorm, /*has_batch_norm=*/true);
  module.setattr("mean", at::from_blob(mean.data(), {8}));
  module.setattr("var", at::from_blob(variance.data(), {8}));
  TwoTrainings both(module, sgd);
  for (uint64_t step = 0; step < 5; ++step) {
    both.train(4, step);
  }
  EXPECT_EQ(both.step().explain().by_plan, 4U);
}

// Errors of TorchScript are none of c10's.
TEST(StepConditions, ARecordingMayEndInAnyError) {
  torch::jit::Module module = two_layers(R"(
def forward(self, x):
    self.mean = self.mean + x.mean(0)
    assert self.scale <= 1.0, "not yet"
    return torch.linear(x + self.mean, self.a_weight, self.a_bias)
)",
                                         /*has_batch_norm=*/true);
  TwoTrainings both(module, sgd);
  for (int call = 0; call < 2; ++call) {
    EXPECT_THROW(both.step()({at::ones({4, 8})}, {at::ones({4, 8})}), std::exception);
    EXPECT_TRUE(at::allclose(both.ours().attr("mean").toTensor(), at::full({8}, call + 1.0)));
  }
  both.theirs().setattr("mean", both.ours().attr("mean").toTensor().clone());
  both.ours().setattr("scale", 0.5);
  both.theirs().setattr("scale", 0.5);
  for (uint64_t step = 0; step < 4; ++step) {
    both.train(4, step);
  }
}

}  // namespace
}  // namespace sconce::testing
