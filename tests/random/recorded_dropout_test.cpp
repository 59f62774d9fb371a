// Dropout in CUDA graphs: the kernel's numbers beside LibTorch's Philox engine, and the generator after replays beside eager
// calls.
#include "tests/cuda_graphs/module_on_both.h"
#include "tests/simulated_gpu/dropout.h"
#include "tests/simulated_gpu/generator.h"
#include "tests/support/graphs.h"

#include "fusion/cuda/dropout_kernel.h"

#include <sconce/train_step.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr at::ScalarType kFloatingTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

// Runs the kernel on the simulated driver's behalf, with a grid of its own.
std::pair<at::Tensor, at::Tensor> drop_by_kernel(const at::Tensor& input, double p, const RandomState& state, uint64_t drawn,
                                                 const DeviceLimits& limits) {
  at::Tensor result = at::empty_like(input);
  at::Tensor mask = at::empty_like(input, at::kBool);
  const DropoutPlan plan = plan_dropout(input.numel(), input.element_size(), limits);
  const auto kernel = dropout_kernel_of(dropout_text(input.scalar_type(), plan.vector, /*is_wide=*/drawn % 8 == 4));
  TORCH_CHECK(kernel, "no kernel for ", input.scalar_type());
  DropoutParameter parameter{.input = input.const_data_ptr(),
                             .result = result.mutable_data_ptr(),
                             .mask = mask.mutable_data_ptr(),
                             .state = &state.seed,
                             .drawn = drawn,
                             .elements = input.numel(),
                             .threads = plan.threads,
                             .vector = plan.vector,
                             .kept = 1 - p};
  void* const arguments[] = {&parameter};
  cuda::LaunchDimensions dimensions{};
  dimensions.grid[0] = 3;
  dimensions.block[0] = 32;
  kernel->kernel(dimensions, arguments);
  return {result, mask};
}

// Of a small GPU, threads take several calls; LibTorch's grid has 1024 threads there.
TEST(DropoutKernel, DrawsAsLibTorchDoes) {
  const DeviceLimits small{.multiprocessors = 2, .multiprocessor_threads = 512};
  const RandomState state{0x123456789abcdefULL, 0x7fffffff8ULL};
  for (const at::ScalarType dtype : kFloatingTypes) {
    for (const int64_t elements : {1, 2, 3, 4, 8, 12, 255, 256, 1000, 1022, 1024, 4096, 4100, 5001, 9000, 20000}) {
      for (const double p : {0.0, 0.1, 0.5, 0.9}) {
        const at::Tensor input = at::randn({elements}).to(dtype);
        const auto found = drop_by_kernel(input, p, {state.seed, state.offset - 16}, 16, small);
        const auto expected = drop_as_on_gpu(input, p, state, small);
        const std::string where = std::to_string(elements) + " of " + toString(dtype) + ", " + std::to_string(p);
        EXPECT_TRUE(at::equal(found.first, expected.first)) << where;
        EXPECT_TRUE(at::equal(found.second, expected.second)) << where;
        EXPECT_EQ(plan_dropout(elements, input.element_size(), small).drawn, numbers_of_dropout(elements, small)) << where;
      }
    }
  }
}

TEST(DropoutKernel, TakesTransposedTensorsInTheOrderOfMemory) {
  const DeviceLimits limits;
  const at::Tensor input = at::randn({6, 10}).t();
  const RandomState state{7, 40};
  const auto found =
      drop_by_kernel(at::randn({60}).as_strided(input.sizes(), input.strides()).copy_(input), 0.5, state, 0, limits);
  const auto expected = drop_as_on_gpu(input, 0.5, state, limits);
  EXPECT_TRUE(at::equal(found.first, expected.first));
  EXPECT_TRUE(at::equal(found.second, expected.second));
}

TEST(DropoutKernel, FillsAsLibTorchDoes) {
  const DeviceLimits small{.multiprocessors = 2, .multiprocessor_threads = 512};
  const RandomState state{99, 8};
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t elements : {1, 4, 255, 1024, 4100, 9000}) {
      at::Tensor found = at::empty({elements}, dtype);
      at::Tensor expected = at::empty({elements}, dtype);
      DropoutParameter parameter{.input = nullptr,
                                 .result = found.mutable_data_ptr(),
                                 .mask = nullptr,
                                 .state = &state.seed,
                                 .drawn = 0,
                                 .elements = elements,
                                 .threads = plan_dropout(elements, found.element_size(), small).threads,
                                 .vector = 1,
                                 .kept = 0.3};
      void* const arguments[] = {&parameter};
      cuda::LaunchDimensions dimensions{};
      dimensions.grid[0] = 2;
      dimensions.block[0] = 64;
      dropout_kernel_of(dropout_text(dtype, 1, /*is_wide=*/false))->kernel(dimensions, arguments);
      fill_as_on_gpu(expected, 0.3, state, small);
      EXPECT_TRUE(at::equal(found, expected)) << elements << " of " << toString(dtype);
    }
  }
}

TEST(DropoutKernel, KeepsTheShareOfElements) {
  const auto [result, mask] = drop_by_kernel(at::ones({100000}), 0.3, {5, 0}, 0, DeviceLimits());
  EXPECT_NEAR(mask.to(at::kDouble).mean().item<double>(), 0.7, 0.01);
  EXPECT_NEAR(result.mean().item<double>(), 1, 0.01);
}

// Needs NVRTC, no GPU.
TEST(DropoutKernel, CompilesForGpus) {
  const auto runtime = find_device_runtime(c10::DeviceType::CUDA);
  if (!runtime) {
    GTEST_SKIP() << runtime.refusal().reason;
  }
  if (const auto code = (*runtime)->compile("extern \"C\" __global__ void f() {}", "sm_90"); !code) {
    GTEST_SKIP() << code.refusal().reason;
  }
  for (const at::ScalarType dtype : kFloatingTypes) {
    for (const int64_t vector : {1, 2, 4, 8}) {
      const auto code = (*runtime)->compile(dropout_text(dtype, vector, /*is_wide=*/vector == 2), "sm_90");
      EXPECT_TRUE(code) << code.refusal().reason;
    }
  }
}

class RecordedDropout : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), IsEmpty()); }

  static uint64_t offset() { return SimulatedGenerator::of_process().get_offset(); }

  // Calls forward and backward as often as there are inputs, beginning with a seed. Returns results and gradients of w.
  std::vector<at::Tensor> train(const std::function<at::Tensor(const at::Tensor& x)>& forward,
                                const std::vector<at::Tensor>& inputs, const at::Tensor& w) {
    at::manual_seed(11);
    std::vector<at::Tensor> values;
    for (const at::Tensor& input : inputs) {
      const at::Tensor result = forward(gpu_.tensor(input));
      const at::Tensor gradient = torch::autograd::grad({weighted_sum({result})}, {w})[0];
      values.push_back(gpu_.values(result.detach()));
      values.push_back(gpu_.values(gradient));
    }
    return values;
  }

  static void expect_equal(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(agree(c10::IValue(found[i]), c10::IValue(expected[i]), 1e-5)) << "value " << i;
    }
  }

  SimulatedGpu gpu_;
};

constexpr const char* kTwoDropouts = R"(
def forward(self, x):
    h = torch.dropout(torch.tanh(torch.mm(x, self.w)), 0.25, True)
    return torch.dropout(torch.mm(h, self.w), 0.5, True) * 2
)";

at::Tensor two_dropouts(const at::Tensor& x, const at::Tensor& w) {
  return at::dropout(at::mm(at::dropout(at::tanh(at::mm(x, w)), 0.25, true), w), 0.5, true) * 2;
}

ModuleOnBoth two_dropouts_on(SimulatedGpu& gpu) {
  return {gpu, kTwoDropouts, {{"w", (at::randn({8, 8}) * 0.5).set_requires_grad(true)}}};
}

std::vector<at::Tensor> inputs_of(at::IntArrayRef sizes, size_t count) {
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < count; ++i) {
    inputs.push_back(at::randn(sizes));
  }
  return inputs;
}

TEST_F(RecordedDropout, DrawsAndLeavesTheGeneratorAsEagerCallsDo) {
  for (const int64_t rows : {5, 16}) {
    ModuleOnBoth both = two_dropouts_on(gpu_);
    const at::Tensor w = both.gpu.script_module().attr("w").toTensor();
    const std::vector<at::Tensor> inputs = inputs_of({rows, 8}, 10);
    const auto found = train([&](const at::Tensor& x) { return both.gpu.forward({x}).toTensor(); }, inputs, w);
    const uint64_t found_offset = offset();
    const auto expected = train([&](const at::Tensor& x) { return two_dropouts(x, w); }, inputs, w);
    expect_equal(found, expected);
    EXPECT_EQ(found_offset, offset());
    EXPECT_EQ(found_offset, 10U * 2 * 4);
    const TrainingCounts counts = both.counts();
    EXPECT_EQ(counts.forward.ranges, 1U) << counts.forward.reasons;
    EXPECT_GE(counts.forward.replays, 7U) << counts.forward.reasons;
    EXPECT_GE(counts.backward.replays, 7U) << counts.backward.reasons;
  }
}

// Numbers that operators draw between the calls.
TEST_F(RecordedDropout, FollowsTheGenerator) {
  ModuleOnBoth both = two_dropouts_on(gpu_);
  const at::Tensor w = both.gpu.script_module().attr("w").toTensor();
  const std::vector<at::Tensor> inputs = inputs_of({4, 8}, 9);
  const auto drop_input = [](const at::Tensor& x) { return at::native_dropout(x, 0.125, true); };
  const auto found =
      train([&](const at::Tensor& x) { return both.gpu.forward({std::get<0>(drop_input(x))}).toTensor(); }, inputs, w);
  const auto expected = train([&](const at::Tensor& x) { return two_dropouts(std::get<0>(drop_input(x)), w); }, inputs, w);
  expect_equal(found, expected);
  EXPECT_GE(both.counts().forward.replays, 5U) << both.counts().forward.reasons;
}

TEST_F(RecordedDropout, LeavesTheGeneratorWhereItWasAfterAFailure) {
  for (const std::string function : {"end_capture", "instantiate_graph", "launch_graph", "begin_capture"}) {
    ModuleOnBoth both = two_dropouts_on(gpu_);
    const at::Tensor w = both.gpu.script_module().attr("w").toTensor();
    const std::vector<at::Tensor> inputs = inputs_of({4, 8}, 8);
    const auto expected = train([&](const at::Tensor& x) { return two_dropouts(x, w); }, inputs, w);
    gpu_.driver().fail_call_of(function, 1, CUDA_ERROR_OUT_OF_MEMORY);
    const auto found = train([&](const at::Tensor& x) { return both.gpu.forward({x}).toTensor(); }, inputs, w);
    EXPECT_TRUE(gpu_.driver().has_failed()) << function;
    gpu_.driver().fail_nothing();
    expect_equal(found, expected);
    EXPECT_EQ(offset(), 8U * 2 * 4) << function;
  }
}

// Dropout that stays active while nothing is trained.
TEST_F(RecordedDropout, DrawsWithoutGradients) {
  const at::NoGradGuard no_grad;
  ModuleOnBoth both = two_dropouts_on(gpu_);
  const at::Tensor w = both.gpu.script_module().attr("w").toTensor();
  const std::vector<at::Tensor> inputs = inputs_of({5, 8}, 8);
  std::vector<at::Tensor> found;
  at::manual_seed(3);
  for (const at::Tensor& x : inputs) {
    found.push_back(gpu_.values(both.gpu.forward({gpu_.tensor(x)}).toTensor()));
  }
  const uint64_t found_offset = offset();
  std::vector<at::Tensor> expected;
  at::manual_seed(3);
  for (const at::Tensor& x : inputs) {
    expected.push_back(gpu_.values(two_dropouts(gpu_.tensor(x), w)));
  }
  expect_equal(found, expected);
  EXPECT_EQ(found_offset, offset());
  EXPECT_GE(both.counts().own.replays, 5U) << both.counts().own.reasons;
}

// It fills a tensor with 0 and 1, whose elements it takes one by one.
TEST_F(RecordedDropout, DrawsChannels) {
  constexpr double kShares[] = {0.25, 0.5};
  for (const double p : kShares) {
    ModuleOnBoth both(gpu_,
                      "\ndef forward(self, x):\n    return torch.feature_dropout(torch.tanh(x * self.w), " +
                          std::to_string(p) + ", True) * 2\n",
                      {{"w", at::randn({7, 4}).set_requires_grad(true)}});
    const at::Tensor w = both.gpu.script_module().attr("w").toTensor();
    const std::vector<at::Tensor> inputs = inputs_of({3, 5, 7, 4}, 9);
    const auto found = train([&](const at::Tensor& x) { return both.gpu.forward({x}).toTensor(); }, inputs, w);
    const uint64_t found_offset = offset();
    const auto expected =
        train([&](const at::Tensor& x) { return at::feature_dropout(at::tanh(x * w), p, true) * 2; }, inputs, w);
    expect_equal(found, expected);
    EXPECT_EQ(found_offset, offset());
    EXPECT_EQ(offset(), 9U * 4);
    EXPECT_EQ(both.counts().forward.ranges, 1U) << both.counts().forward.reasons;
    EXPECT_GE(both.counts().forward.replays, 5U) << both.counts().forward.reasons;
  }
}

// LibTorch takes such elements one by one.
TEST_F(RecordedDropout, RunsStepByStepWhereOperandsAreNotAligned) {
  ModuleOnBoth both(gpu_, "\ndef forward(self, x):\n    return torch.dropout(x * self.w, 0.5, True) * 2\n",
                    {{"w", at::randn({8}).set_requires_grad(true)}});
  const at::Tensor w = both.gpu.script_module().attr("w").toTensor();
  const std::vector<at::Tensor> inputs = inputs_of({9}, 8);
  const auto found = train([&](const at::Tensor& x) { return both.gpu.forward({x.slice(0, 1)}).toTensor(); }, inputs, w);
  const auto expected = train([&](const at::Tensor& x) { return at::dropout(x.slice(0, 1) * w, 0.5, true) * 2; }, inputs, w);
  expect_equal(found, expected);
  EXPECT_THAT(both.counts().forward.reasons, HasSubstr("not aligned")) << both.counts().forward.reasons;
}

// Forward, loss, backward and update are one range.
TEST_F(RecordedDropout, IsPartOfAWholeStep) {
  const auto weight = [] { return (at::randn({8, 8}) * 0.3).set_requires_grad(true); };
  const torch::jit::Module on_cpu = module_of(kTwoDropouts, {{"w", weight()}});
  const torch::jit::Module ours = copy_on_gpu(on_cpu);
  const torch::jit::Module theirs = copy_on_gpu(on_cpu);
  torch::optim::SGD our_optimizer(parameters_of(ours), torch::optim::SGDOptions(0.1));
  torch::optim::SGD their_optimizer(parameters_of(theirs), torch::optim::SGDOptions(0.1));
  TrainStep step(
      accelerate(ours, Options().compile(CompileMode::kBlocking)),
      [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); }, our_optimizer, TrainOptions());
  const std::vector<at::Tensor> inputs = inputs_of({6, 8}, 12);
  at::manual_seed(5);
  std::vector<at::Tensor> losses;
  for (const at::Tensor& x : inputs) {
    losses.push_back(gpu_.values(step({gpu_.tensor(x)}, {gpu_.tensor(x)})));
  }
  const uint64_t found_offset = offset();
  at::manual_seed(5);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor w = parameters_of(theirs)[0];
    their_optimizer.zero_grad();
    const at::Tensor loss = at::mse_loss(two_dropouts(gpu_.tensor(inputs[i]), w), gpu_.tensor(inputs[i]));
    loss.backward();
    their_optimizer.step();
    EXPECT_TRUE(agree(c10::IValue(losses[i]), c10::IValue(gpu_.values(loss.detach())), 1e-5)) << "step " << i;
  }
  EXPECT_EQ(found_offset, offset());
  EXPECT_TRUE(agree(c10::IValue(gpu_.values(parameters_of(ours)[0].detach())),
                    c10::IValue(gpu_.values(parameters_of(theirs)[0].detach())), 1e-5));
  RangeCounts counts;
  for (const Explanation& explanation : step.explain().plans) {
    const RangeCounts own = counts_of(explanation).own;
    counts.ranges += own.ranges;
    counts.replays += own.replays;
    counts.reasons += own.reasons;
  }
  EXPECT_EQ(counts.ranges, 1U) << counts.reasons;
  EXPECT_GE(counts.replays, 8U) << counts.reasons;
}

}  // namespace
}  // namespace sconce::testing
