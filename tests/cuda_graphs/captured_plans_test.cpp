// Plans that capture ranges of their steps, on the simulated GPU: the values of the CPU, in every call.
#include "tests/cuda_graphs/module_on_both.h"
#include "tests/simulated_gpu/simulated_gpu.h"
#include "tests/support/graphs.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const c10::Device kGpu(c10::kCUDA, 0);

// Returns the values of a result on the CPU.
c10::IValue on_cpu(SimulatedGpu& gpu, const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda()) {
    return gpu.values(value.toTensor());
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      elements.push_back(on_cpu(gpu, element));
    }
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  return value;
}

struct Ranges {
  size_t count = 0;
  uint64_t captures = 0;
  uint64_t replays = 0;
  std::string reasons;
};

Ranges ranges_of(const Explanation& explanation) {
  Ranges ranges;
  for (const PlanExplanation& plan : explanation.plans) {
    for (const RecordedExplanation& each : plan.recorded) {
      ++ranges.count;
      ranges.captures += each.recordings;
      ranges.replays += each.replays;
      for (const auto& uncaptured : each.unrecorded) {
        ranges.reasons += std::to_string(uncaptured.runs) + " times: " + uncaptured.reason + "\n";
      }
      for (const NotPreparedExplanation& entry : each.plan.front().not_prepared) {
        ranges.reasons += entry.op + ": " + to_string(entry.reason) + "\n";
      }
    }
  }
  return ranges;
}

class CapturedPlans : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), IsEmpty()); }

  // A module of the methods on the CPU, and the same on the GPU.
  struct Pair {
    torch::jit::Module cpu;
    Module gpu;
  };
  Pair pair_of(const std::string& methods, const std::vector<std::pair<std::string, c10::IValue>>& attributes,
               Options options = {}) {
    torch::jit::Module cpu = module_of(methods, attributes);
    torch::jit::Module copy = cpu.deepcopy();
    copy.to(kGpu);
    cpu.eval();
    copy.eval();
    return {cpu, accelerate(copy, options.compile(CompileMode::kBlocking))};
  }

  std::vector<c10::IValue> on_gpu(const std::vector<c10::IValue>& values) {
    std::vector<c10::IValue> copies;
    for (const c10::IValue& value : values) {
      copies.push_back(value.isTensor() ? c10::IValue(gpu_.tensor(value.toTensor())) : value);
    }
    return copies;
  }

  void expect_agree(Pair& pair, const std::vector<c10::IValue>& arguments, const std::string& where = {}) {
    const c10::IValue expected = pair.cpu.forward(arguments);
    const c10::IValue found = on_cpu(gpu_, pair.gpu.forward(on_gpu(arguments)));
    EXPECT_TRUE(agree(found, expected, 1e-5)) << where;
  }

  static Ranges ranges_of(const Pair& pair) { return testing::ranges_of(pair.gpu.method("forward").explain()); }

  const at::NoGradGuard no_grad_;
  SimulatedGpu gpu_;
};

std::vector<std::pair<std::string, c10::IValue>> network_weights() {
  return {{"w", at::randn({8, 4})}, {"b", at::randn({8})}, {"v", at::randn({8, 8})}};
}

TEST_F(CapturedPlans, AreReplayedFromTheThirdCallOn) {
  Pair pair = pair_of(kNetwork, network_weights());
  for (int call = 0; call < 6; ++call) {
    expect_agree(pair, {at::randn({5, 4})}, "call " + std::to_string(call));
  }
  const Ranges ranges = ranges_of(pair);
  EXPECT_EQ(ranges.count, 1U);
  EXPECT_GE(ranges.captures, 1U) << ranges.reasons;
  EXPECT_EQ(ranges.replays, 5U) << ranges.reasons;
  EXPECT_GT(gpu_.driver_calls("launch_kernel"), 0U) << ranges.reasons;
}

TEST_F(CapturedPlans, ServeSeveralShapes) {
  Pair pair = pair_of(kNetwork, network_weights());
  for (int call = 0; call < 24; ++call) {
    expect_agree(pair, {at::randn({2 + call % 3, 4})}, "call " + std::to_string(call));
  }
  const Ranges ranges = ranges_of(pair);
  EXPECT_GE(ranges.replays, 15U) << ranges.reasons;
}

TEST_F(CapturedPlans, AreRunUncapturedForShapesThatComeOnce) {
  Pair pair = pair_of(kNetwork, network_weights());
  for (int call = 0; call < 20; ++call) {
    expect_agree(pair, {at::randn({2 + call, 4})}, "call " + std::to_string(call));
  }
  EXPECT_LE(ranges_of(pair).captures, 1U);
}

TEST_F(CapturedPlans, GiveResultsOfTheirOwn) {
  Pair pair = pair_of(kNetwork, network_weights());
  std::vector<at::Tensor> inputs;
  std::vector<c10::IValue> results;
  for (int call = 0; call < 6; ++call) {
    inputs.push_back(at::randn({5, 4}));
    results.push_back(pair.gpu.forward(on_gpu({inputs.back()})));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(agree(on_cpu(gpu_, results[i]), pair.cpu.forward({inputs[i]}), 1e-5)) << "call " << i;
  }
}

TEST_F(CapturedPlans, WriteOperandsAndAttributes) {
  Pair pair = pair_of(R"(
def forward(self, x, y):
    x.mul_(2).add_(y)
    self.total.add_(x.sum())
    z = torch.relu(x) + self.total
    return z, x
)",
                      {{"total", at::zeros({})}});
  for (int call = 0; call < 6; ++call) {
    const at::Tensor x = at::randn({3, 4});
    const at::Tensor y = at::randn({4});
    const at::Tensor gpu_x = gpu_.tensor(x);
    const c10::IValue expected = pair.cpu.forward({x, y});
    const c10::IValue found = pair.gpu.forward({gpu_x, gpu_.tensor(y)});
    EXPECT_TRUE(agree(on_cpu(gpu_, found), expected, 1e-5)) << "call " << call;
    EXPECT_TRUE(agree(c10::IValue(gpu_.values(gpu_x)), c10::IValue(x), 1e-5)) << "call " << call;
    EXPECT_TRUE(found.toTupleRef().elements()[1].toTensor().is_alias_of(gpu_x));
    EXPECT_GT(gpu_x._version(), 0);
  }
  EXPECT_GE(ranges_of(pair).replays, 4U) << ranges_of(pair).reasons;
}

TEST_F(CapturedPlans, SeeThatOperandsShareMemory) {
  Pair pair = pair_of("def forward(self, x, y):\n    x.mul_(2)\n    return torch.relu(y) * x\n", {});
  for (int call = 0; call < 8; ++call) {
    const at::Tensor x = at::randn({4});
    const at::Tensor gpu_x = gpu_.tensor(x);
    const bool shares = call >= 5;
    const c10::IValue expected = pair.cpu.forward({x, shares ? x : at::ones({4})});
    const c10::IValue found = pair.gpu.forward({gpu_x, shares ? gpu_x : gpu_.tensor(at::ones({4}))});
    EXPECT_TRUE(agree(on_cpu(gpu_, found), expected, 1e-5)) << "call " << call;
  }
}

TEST_F(CapturedPlans, ReturnViewsAndOperands) {
  Pair pair = pair_of(R"(
def forward(self, x):
    h = torch.mm(x, self.w) + 1
    return h, h[0], h.t(), x[1], self.w[0]
)",
                      {{"w", at::randn({4, 4})}});
  for (int call = 0; call < 5; ++call) {
    const at::Tensor x = at::randn({3, 4});
    const at::Tensor gpu_x = gpu_.tensor(x);
    const c10::IValue expected = pair.cpu.forward({x});
    const c10::IValue found = pair.gpu.forward({gpu_x});
    EXPECT_TRUE(agree(on_cpu(gpu_, found), expected, 1e-5)) << "call " << call;
    const auto& results = found.toTupleRef().elements();
    for (size_t i : {1, 2}) {
      EXPECT_TRUE(results[i].toTensor().is_alias_of(results[0].toTensor())) << i;
    }
    EXPECT_TRUE(results[3].toTensor().is_alias_of(gpu_x));
    results[3].toTensor().zero_();
    EXPECT_EQ(gpu_.values(gpu_x)[1].abs().sum().item<float>(), 0);
  }
}

TEST_F(CapturedPlans, TakeNumbersThatChange) {
  Pair pair = pair_of(
      "def forward(self, x, n: int, s: float, w):\n"
      "    h = torch.mm(x, w)\n"
      "    for i in range(n):\n        h = torch.tanh(h * s) + i\n    return h\n",
      {});
  const at::Tensor w = at::randn({4, 4});
  for (int call = 0; call < 12; ++call) {
    expect_agree(pair, {at::randn({3, 4}), call % 2 + 1, 0.25 * call, w}, "call " + std::to_string(call));
  }
  EXPECT_GE(ranges_of(pair).replays, 4U) << ranges_of(pair).reasons;
}

TEST_F(CapturedPlans, FollowParametersThatMove) {
  Pair pair = pair_of(kNetwork, network_weights());
  for (int call = 0; call < 9; ++call) {
    if (call == 4 || call == 6) {
      const at::Tensor w = at::randn({8, 4});
      pair.cpu.setattr("w", w);
      torch::jit::Module script = pair.gpu.script_module();
      script.setattr("w", gpu_.tensor(w));
    }
    expect_agree(pair, {at::randn({5, 4})}, "call " + std::to_string(call));
  }
}

TEST_F(CapturedPlans, RunOnTheCurrentStream) {
  Pair pair = pair_of(kNetwork, network_weights());
  DeviceRuntime& runtime = gpu_.runtime();
  for (int call = 0; call < 8; ++call) {
    const at::Tensor x = at::randn({5, 4});
    const at::Tensor gpu_x = gpu_.tensor(x);
    const c10::IValue expected = pair.cpu.forward({x});
    const CurrentStream other(runtime, call % 2 == 0 ? runtime.current_stream(0) : runtime.side_stream(0));
    EXPECT_TRUE(agree(on_cpu(gpu_, pair.gpu.forward({gpu_x})), expected, 1e-5)) << "call " << call;
  }
}

TEST_F(CapturedPlans, EndAtExceptionsAndGoOn) {
  Pair pair = pair_of(kNetwork, network_weights());
  for (int call = 0; call < 8; ++call) {
    if (call % 2 == 1) {
      EXPECT_ANY_THROW(pair.gpu.forward({gpu_.tensor(at::randn({5, 3}))})) << "call " << call;
    }
    expect_agree(pair, {at::randn({5, 4})}, "call " + std::to_string(call));
  }
  EXPECT_GE(ranges_of(pair).replays, 5U) << ranges_of(pair).reasons;
}

TEST_F(CapturedPlans, KeepInferenceTensorsApart) {
  Pair pair = pair_of(kNetwork, network_weights());
  for (int call = 0; call < 12; ++call) {
    const c10::InferenceMode mode(call % 2 == 1);
    const at::Tensor x = at::randn({5, 4});
    const c10::IValue found = pair.gpu.forward({gpu_.tensor(x)});
    EXPECT_TRUE(agree(on_cpu(gpu_, found), pair.cpu.forward({x}), 1e-5)) << "call " << call;
    EXPECT_EQ(found.toTupleRef().elements()[0].toTensor().is_inference(), call % 2 == 1) << "call " << call;
  }
}

// Whatever call of the driver fails: the call of the model is right or throws, and the next ones are right.
TEST_F(CapturedPlans, SurviveEachFailureOfTheDriver) {
  const auto weights = network_weights();
  bool failed = true;
  size_t thrown = 0;
  size_t position = 0;
  while (failed && position < 400) {
    ++position;
    {
      Pair pair = pair_of(kNetwork, weights);
      expect_agree(pair, {at::randn({5, 4})}, "first call");
      gpu_.driver().fail_call(position, CUDA_ERROR_LAUNCH_FAILED);
      for (int call = 0; call < 3; ++call) {
        try {
          expect_agree(pair, {at::randn({5, 4})}, "failure of driver call " + std::to_string(position));
        } catch (const c10::Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("simulated driver: error"));
          ++thrown;
        }
      }
      failed = gpu_.driver().has_failed();
      gpu_.driver().fail_nothing();
      for (int call = 0; call < 4; ++call) {
        expect_agree(pair, {at::randn({5, 4})}, "after the failure of driver call " + std::to_string(position));
      }
    }
    ASSERT_FALSE(HasFailure()) << "driver call " << position;
  }
  EXPECT_FALSE(failed) << "there are more calls to fail";
  EXPECT_GT(position, 20U);
  EXPECT_LT(thrown, position);
}

TEST_F(CapturedPlans, KeepMemoryFlatOverManyCaptures) {
  size_t reserved = 0;
  Pair pair = pair_of(kNetwork, network_weights());
  for (int round = 0; round < 120; ++round) {
    // More shapes than a range keeps captures of.
    for (int shape = 0; shape < 12; ++shape) {
      for (int call = 0; call < 4; ++call) {
        pair.gpu.forward({gpu_.tensor(at::randn({2 + shape, 4}))});
      }
    }
    if (round == 3) {
      reserved = gpu_.memory().bytes_reserved();
    }
  }
  const Ranges ranges = ranges_of(pair);
  EXPECT_GE(ranges.captures, 1000U) << ranges.reasons;
  EXPECT_LE(gpu_.memory().bytes_reserved(), reserved);
}

TEST_F(CapturedPlans, ServeThreadsAtOnce) {
  Pair pair = pair_of(kNetwork, network_weights());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      const at::NoGradGuard no_grad;
      const c10::Stream stream = gpu_.runtime().take_stream(0);  // the simulated GPU lends few others
      const CurrentStream own(gpu_.runtime(), stream);
      for (int call = 0; call < 30; ++call) {
        const at::Tensor x = at::full({3 + thread, 4}, 0.1 * call - thread);
        const c10::IValue found = on_cpu(gpu_, pair.gpu.forward({gpu_.tensor(x)}));
        wrong += agree(found, pair.cpu.forward({x}), 1e-5) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GT(ranges_of(pair).replays, 30U) << ranges_of(pair).reasons;
}

TEST_F(CapturedPlans, AreNotMadeWhereCopiesTakeLongerThanLaunches) {
  Options options;
  options.passes().disable("form_groups");
  Pair pair = pair_of("def forward(self, x):\n    return torch.tanh(torch.relu(x))\n", {}, options);
  const at::Tensor large = at::randn({2400, 1000});
  for (int call = 0; call < 4; ++call) {
    expect_agree(pair, {large});
  }
  EXPECT_EQ(ranges_of(pair).captures, 0U);
  EXPECT_THAT(ranges_of(pair).reasons, HasSubstr("each replay would copy "));
  for (int call = 0; call < 6; ++call) {
    expect_agree(pair, {at::randn({3, 4})});
  }
  EXPECT_GE(ranges_of(pair).captures, 1U) << "small ones are";
}

TEST_F(CapturedPlans, AreOffWithoutCudaGraphs) {
  Pair pair = pair_of(kNetwork, network_weights(), Options().cuda_graphs(false));
  for (int call = 0; call < 4; ++call) {
    expect_agree(pair, {at::randn({5, 4})});
  }
  EXPECT_EQ(ranges_of(pair).count, 0U);
  EXPECT_EQ(gpu_.driver_calls("launch_graph"), 0U);
}

}  // namespace
}  // namespace sconce::testing
