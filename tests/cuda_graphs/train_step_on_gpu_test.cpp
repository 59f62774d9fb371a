// sconce::TrainStep on the simulated GPU: losses and parameters of LibTorch's loop on the CPU, with the step captured as one
// range.
#include "tests/cuda_graphs/module_on_both.h"
#include "tests/simulated_gpu/generator.h"
#include "tests/support/graphs.h"

#include <sconce/train_step.h>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kPerceptron = R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias))
    return torch.linear(h, self.b_weight, self.b_bias) * 1.5
)";

torch::jit::Module two_layers(const char* forward, Attributes buffers = {}) {
  at::manual_seed(3);
  const auto parameter = [](const at::Tensor& values) { return values.clone().set_requires_grad(true); };
  Attributes attributes = {{"a_weight", parameter(at::randn({8, 8}) * 0.3)},
                           {"a_bias", parameter(at::zeros({8}))},
                           {"b_weight", parameter(at::randn({8, 8}) * 0.3)},
                           {"b_bias", parameter(at::zeros({8}))}};
  attributes.insert(attributes.end(), buffers.begin(), buffers.end());
  return module_of(forward, attributes);
}

std::vector<at::Tensor> state_of(const torch::jit::Module& module) {
  std::vector<at::Tensor> state = parameters_of(module);
  for (const at::Tensor& buffer : module.buffers()) {
    state.push_back(buffer);
  }
  return state;
}

using MakeOptimizer = std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

template <typename Optimizer, typename Settings>
MakeOptimizer maker(const Settings& settings) {
  return [settings](std::vector<at::Tensor> parameters) {
    return std::make_shared<Optimizer>(std::move(parameters), settings);
  };
}

struct NamedOptimizer {
  const char* name;
  MakeOptimizer make;
};

std::vector<NamedOptimizer> optimizers() {
  using namespace torch::optim;
  return {
      {"SGD", maker<SGD>(SGDOptions(0.1))},
      {"SGD with momentum", maker<SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(0.01))},
      {"SGD, Nesterov", maker<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true))},
      {"Adam", maker<Adam>(AdamOptions(0.01).weight_decay(0.01))},
      {"Adam, amsgrad", maker<Adam>(AdamOptions(0.01).amsgrad(true))},
      {"AdamW", maker<AdamW>(AdamWOptions(0.01))},
      {"RMSprop", maker<RMSprop>(RMSpropOptions(0.01).momentum(0.9).centered(true))},
      {"Adagrad", maker<Adagrad>(AdagradOptions(0.05).lr_decay(0.1))},
  };
}

// A module that TrainStep trains on the simulated GPU, and a copy that LibTorch trains on the CPU.
class TwoDevices {
 public:
  TwoDevices(SimulatedGpu& gpu, const torch::jit::Module& module, const MakeOptimizer& make,
             const TrainOptions& options = {}, Options settings = {})
      : gpu_(gpu),
        options_(options),
        theirs_(module),
        ours_(copy_on_gpu(module)),
        our_optimizer_(make(parameters_of(ours_))),
        their_optimizer_(make(parameters_of(theirs_))),
        step_(std::make_unique<TrainStep>(
            accelerate(ours_, settings.compile(CompileMode::kBlocking)),
            [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); }, *our_optimizer_,
            options)) {}

  // Takes a step on both devices, and compares losses, parameters and buffers.
  void train(int64_t batch, const std::string& where) {
    const at::ScalarType dtype = parameters_of(theirs_).front().scalar_type();
    const at::Tensor x = at::randn({batch, 8}).to(dtype);
    const at::Tensor target = at::randn({batch, 8}).softmax(1).to(dtype);
    const at::Tensor found = (*step_)({gpu_.tensor(x)}, {gpu_.tensor(target)});
    EXPECT_FALSE(found.requires_grad());
    const at::Tensor expected = theirs(x, target);
    expect_close(found, expected, where + ", loss");
    expect_equal_states(where);
  }

  void expect_equal_states(const std::string& where) {
    const auto states = std::pair(state_of(ours_), state_of(theirs_));
    for (size_t i = 0; i < states.first.size(); ++i) {
      expect_close(states.first[i], states.second[i], where + ", tensor " + std::to_string(i));
    }
  }

  void set_lr(double lr) {
    for (torch::optim::Optimizer* optimizer : {our_optimizer_.get(), their_optimizer_.get()}) {
      for (auto& group : optimizer->param_groups()) {
        group.options().set_lr(lr);
      }
    }
  }

  RangeCounts counts() const {
    RangeCounts counts;
    for (const Explanation& explanation : step_->explain().plans) {
      const RangeCounts each = counts_of(explanation).own;
      counts.ranges += each.ranges;
      counts.captures += each.captures;
      counts.replays += each.replays;
      counts.reasons += each.reasons;
    }
    return counts;
  }

  TrainStep& step() { return *step_; }
  torch::jit::Module& ours() { return ours_; }
  torch::jit::Module& theirs() { return theirs_; }
  torch::optim::Optimizer& our_optimizer() { return *our_optimizer_; }
  torch::optim::Optimizer& their_optimizer() { return *their_optimizer_; }

 private:
  void expect_close(const at::Tensor& found, const at::Tensor& expected, const std::string& where) {
    const at::Tensor values = gpu_.values(found);
    const double tolerance = options_.autocast() || expected.scalar_type() != at::kFloat ? 0.02 : 1e-5;
    EXPECT_TRUE(at::allclose(values, expected, 10 * tolerance, tolerance)) << where << "\n" << values << "\n" << expected;
  }

  at::Tensor theirs(const at::Tensor& x, const at::Tensor& target) {
    if (calls_ == 0) {
      their_optimizer_->zero_grad();
    }
    const bool casts = options_.autocast().has_value();
    at::autocast::set_autocast_enabled(at::kCPU, casts);
    at::autocast::set_autocast_dtype(at::kCPU, options_.autocast().value_or(at::kBFloat16));
    torch::jit::setGraphExecutorOptimize(false);  // no gradients but autograd's
    const at::Tensor loss = at::mse_loss(theirs_.forward({x}).toTensor(), target);
    torch::jit::setGraphExecutorOptimize(true);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    (loss / static_cast<double>(options_.accumulate())).backward();
    if (++calls_ == options_.accumulate()) {
      calls_ = 0;
      if (options_.clip_norm()) {
        torch::nn::utils::clip_grad_norm_(parameters_of(theirs_), *options_.clip_norm());
      }
      if (options_.clip_value()) {
        torch::nn::utils::clip_grad_value_(parameters_of(theirs_), *options_.clip_value());
      }
      their_optimizer_->step();
    }
    return loss.detach();
  }

  SimulatedGpu& gpu_;
  const TrainOptions options_;
  torch::jit::Module theirs_;
  torch::jit::Module ours_;
  std::shared_ptr<torch::optim::Optimizer> our_optimizer_;
  std::shared_ptr<torch::optim::Optimizer> their_optimizer_;
  std::unique_ptr<TrainStep> step_;
  size_t calls_ = 0;
};

class TrainStepOnGpu : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), IsEmpty()); }
  SimulatedGpu gpu_;
};

std::string reasons_of(const TrainExplanation& explanation) {
  std::string text;
  for (const auto& [reason, times] : explanation.reasons) {
    text += std::to_string(times) + " times eager: " + reason + "\n";
  }
  for (const Explanation& plan : explanation.plans) {
    for (const RefusalExplanation& refusal : plan.refusals) {
      text += refusal.what + ": " + refusal.reason + "\n";
    }
  }
  return text;
}

TEST_F(TrainStepOnGpu, CapturesTheWholeStep) {
  for (const NamedOptimizer& optimizer : optimizers()) {
    for (const auto& [clipping, options] :
         {std::pair("", TrainOptions()), std::pair(", clipped by norm", TrainOptions().clip_norm(0.1)),
          std::pair(", clipped by value", TrainOptions().clip_value(0.01))}) {
      const std::string name = std::string(optimizer.name) + clipping;
      TwoDevices both(gpu_, two_layers(kPerceptron), optimizer.make, options);
      for (int step = 1; step <= 10; ++step) {
        both.set_lr(0.02 / step);
        both.train(/*batch=*/4, name + ", step " + std::to_string(step));
      }
      const TrainExplanation explanation = both.step().explain();
      const RangeCounts counts = both.counts();
      EXPECT_EQ(explanation.updated_by_plan, 9U) << name << "\n" << reasons_of(explanation);
      EXPECT_EQ(counts.ranges, 1U) << name;
      EXPECT_EQ(counts.captures, 1U) << name;
      EXPECT_EQ(counts.replays, 8U) << name << "\n" << counts.reasons;
    }
  }
}

constexpr const char* kRecurrent = R"(
def forward(self, x):
    h = torch.zeros_like(x)
    for t in range(4):
        if t % 2 == 0:
            h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias) + torch.linear(h, self.b_weight))
        else:
            h = h * torch.sigmoid(h + self.b_bias)
    return h
)";
constexpr const char* kNormalized = R"(
def forward(self, x):
    h = torch.batch_norm(torch.linear(x, self.a_weight), self.b_bias + 1, self.a_bias, self.mean, self.var, True, 0.1, 1e-5, True)
    return torch.linear(torch.relu(h), self.b_weight)
)";
constexpr const char* kAttentive = R"(
def forward(self, x):
    n = torch.layer_norm(x, [8], self.a_bias + 1, self.b_bias)
    q = torch.linear(n, self.a_weight)
    p = torch.softmax(torch.mm(q, n.t()), -1)
    return x + torch.mm(p, torch.linear(n, self.b_weight))
)";

MakeOptimizer adam() { return maker<torch::optim::Adam>(torch::optim::AdamOptions(0.01)); }

TEST_F(TrainStepOnGpu, TrainsOtherModels) {
  for (const auto& [name, forward, has_buffers] :
       {std::tuple("recurrent", kRecurrent, false), std::tuple("batch norm", kNormalized, true),
        std::tuple("attention", kAttentive, false)}) {
    const Attributes buffers = {{"mean", at::zeros({8})}, {"var", at::ones({8})}};
    TwoDevices both(gpu_, two_layers(forward, has_buffers ? buffers : Attributes()), adam());
    for (int step = 1; step <= 8; ++step) {
      both.train(/*batch=*/4, std::string(name) + ", step " + std::to_string(step));
    }
    EXPECT_EQ(both.step().explain().updated_by_plan, 7U) << name;
    EXPECT_GE(both.counts().replays, 6U) << name << "\n" << both.counts().reasons;
  }
}

// The gradients leave such plans, and CapturedOptimizer steps.
TEST_F(TrainStepOnGpu, AccumulatesAndKeepsGradients) {
  for (const TrainOptions& options : {TrainOptions().accumulate(3), TrainOptions().keep_gradients(true)}) {
    TwoDevices both(gpu_, two_layers(kPerceptron), adam(), options);
    for (int step = 1; step <= 9; ++step) {
      both.train(/*batch=*/4, "step " + std::to_string(step));
    }
    EXPECT_EQ(both.step().explain().by_plan, 8U);
    EXPECT_GE(both.counts().replays, 6U) << both.counts().reasons;
  }
}

TEST_F(TrainStepOnGpu, CastsAutomatically) {
  TwoDevices both(gpu_, two_layers(kPerceptron), adam(), TrainOptions().autocast(at::kBFloat16));
  for (int step = 1; step <= 5; ++step) {
    both.train(/*batch=*/4, "step " + std::to_string(step));
  }
  EXPECT_EQ(both.step().explain().updated_by_plan, 4U);
  EXPECT_THAT(both.step().explain().plans[0].plans[0].recorded[0].plan[0].text, HasSubstr("_to_copy"));
}

TEST_F(TrainStepOnGpu, TakesBatchesOfSeveralSizes) {
  TwoDevices both(gpu_, two_layers(kPerceptron), adam());
  for (int step = 0; step < 18; ++step) {
    both.train(/*batch=*/2 + step % 3, "step " + std::to_string(step));
  }
  EXPECT_GE(both.counts().replays, 6U) << both.counts().reasons;
}

TEST_F(TrainStepOnGpu, FollowsParametersAndStates) {
  TwoDevices both(gpu_, two_layers(kPerceptron), maker<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01)));
  const std::vector<at::Tensor> ours = parameters_of(both.ours());
  const std::vector<at::Tensor> theirs = parameters_of(both.theirs());
  std::vector<at::Tensor> kept;  // so that the old memory is not given to the new tensors
  for (int step = 0; step < 20; ++step) {
    const std::string where = "step " + std::to_string(step);
    {
      const at::NoGradGuard no_grad;
      const size_t i = static_cast<size_t>(step) % ours.size();
      const at::Tensor values = at::randn_like(theirs[i]) * 0.3;
      if (step % 5 == 3) {  // another tensor's memory
        kept.push_back(ours[i].data());
        ours[i].set_data(gpu_.tensor(values));
        theirs[i].set_data(values);
      } else if (step % 5 == 4) {  // other values, as from a file
        ours[i].copy_(gpu_.tensor(values));
        theirs[i].copy_(values);
      }
    }
    if (step % 7 == 6) {  // an optimizer's step of LibTorch
      for (size_t i = 0; i < ours.size(); ++i) {
        const at::Tensor gradient = at::randn_like(theirs[i]);
        ours[i].mutable_grad() = gpu_.tensor(gradient);
        theirs[i].mutable_grad() = gradient;
      }
      both.our_optimizer().step();
      both.their_optimizer().step();
      both.expect_equal_states(where + ", the step of LibTorch");
    }
    std::vector<int64_t> versions;
    std::vector<const void*> addresses;
    for (const at::Tensor& parameter : ours) {
      versions.push_back(static_cast<int64_t>(parameter._version()));
      addresses.push_back(parameter.const_data_ptr());
    }
    both.train(/*batch=*/4, where);
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_GT(static_cast<int64_t>(ours[i]._version()), versions[i]) << where;
      EXPECT_EQ(ours[i].const_data_ptr(), addresses[i]) << where;
    }
  }
  EXPECT_EQ(both.step().explain().updated_by_plan, 19U);
  EXPECT_GE(both.counts().replays, 12U) << both.counts().reasons;
}

TEST_F(TrainStepOnGpu, LeavesParametersAloneWhenAStepFails) {
  TwoDevices both(gpu_, two_layers(kPerceptron), adam());
  for (int step = 0; step < 8; ++step) {
    if (step % 2 == 1) {
      EXPECT_ANY_THROW(both.step()({gpu_.tensor(at::randn({4, 7}))}, {gpu_.tensor(at::randn({4, 8}))}));
      both.expect_equal_states("after an exception");
    }
    both.train(/*batch=*/4, "step " + std::to_string(step));
  }
  EXPECT_GE(both.counts().replays, 5U) << both.counts().reasons;
}

// Kernels would round sums of bfloat16 numbers in another way, so that operators read the optimizer's numbers.
TEST_F(TrainStepOnGpu, TrainsParametersOfLowPrecision) {
  torch::jit::Module module = two_layers(kPerceptron);
  {
    const at::NoGradGuard no_grad;
    module.to(at::kBFloat16);
  }
  TwoDevices both(gpu_, module, adam());
  for (int step = 0; step < 8; ++step) {
    both.set_lr(0.02 / (step + 1));
    both.train(/*batch=*/4, "step " + std::to_string(step));
  }
  EXPECT_EQ(both.step().explain().updated_by_plan, 7U) << reasons_of(both.step().explain());
}

// A kernel reads numbers in memory if they fit float16; others are part of a capture.
TEST_F(TrainStepOnGpu, TakesNumbersOfAllSizes) {
  TwoDevices both(gpu_, two_layers(kPerceptron), maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1)));
  for (int step = 0; step < 12; ++step) {
    both.set_lr(step == 5 ? 0 : step == 6 || step == 8 ? 1e-30 : step == 7 ? -1e-3 : 0.01 / (step + 1));
    both.train(/*batch=*/4, "step " + std::to_string(step));
  }
}

// A call of new sizes is captured with symbols first. If that raises, the step runs again, with the same random numbers.
TEST_F(TrainStepOnGpu, DrawsOnceWhereAStepOfNewSizesRaises) {
  constexpr const char* kDropsAndCuts = R"(
def forward(self, x, k: int):
    h = torch.dropout(torch.linear(x, self.w), 0.3, True)
    h = h[:, :6] if k == 0 else h[:, k:k + 6]
    return torch.relu(h) * self.v
)";
  const Attributes attributes = {{"w", at::randn({8, 7}).set_requires_grad(true)}, {"v", at::ones({6})}};
  torch::jit::Module ours = copy_on_gpu(module_of(kDropsAndCuts, attributes));
  torch::jit::Module theirs = copy_on_gpu(ours);
  torch::optim::SGD our_optimizer(parameters_of(ours), 0.01);
  torch::optim::SGD their_optimizer(parameters_of(theirs), 0.01);
  const TrainStep::Loss loss = [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); };
  TrainStep step(accelerate(ours, Options().compile(CompileMode::kBlocking)), loss, our_optimizer);
  at::Generator generator = SimulatedGenerator::of_process();
  for (const auto& [rows, cut] : std::vector<std::pair<int64_t, int64_t>>{{4, 0}, {4, 0}, {4, 0}, {5, 5}, {5, 0}, {5, 0}}) {
    const at::Tensor x = gpu_.tensor(at::randn({rows, 7}));
    const at::Tensor target = gpu_.tensor(at::randn({rows, 6}));
    generator.set_current_seed(7);
    torch::jit::setGraphExecutorOptimize(false);
    their_optimizer.zero_grad();
    if (cut != 0) {
      EXPECT_ANY_THROW(loss(theirs.forward({x, cut}).toTensor(), target));
    } else {
      loss(theirs.forward({x, cut}).toTensor(), target).backward();
      their_optimizer.step();
    }
    torch::jit::setGraphExecutorOptimize(true);
    const uint64_t drawn = generator.get_offset();
    generator.set_current_seed(7);
    if (cut != 0) {
      EXPECT_ANY_THROW(step({x, cut}, {target}));
    } else {
      step({x, cut}, {target});
    }
    gpu_.runtime().synchronize(0);
    EXPECT_EQ(generator.get_offset(), drawn) << rows << " rows";
    EXPECT_TRUE(at::allclose(gpu_.values(ours.attr("w").toTensor()), gpu_.values(theirs.attr("w").toTensor()), 1e-4, 1e-5));
  }
}

}  // namespace
}  // namespace sconce::testing
