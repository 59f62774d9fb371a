// sconce::TrainStep: parameters, buffers and losses are those of a loop of LibTorch's own, step by step.
#include <sconce/module.h>
#include <sconce/train_step.h>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/nn/functional.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>

#include <functional>

namespace sconce {
namespace {

namespace F = torch::nn::functional;

// A module of TorchScript source with two linear layers, "a" and "b", of eight numbers.
torch::jit::Module module_of(const std::string& forward, bool has_batch_norm = false) {
  torch::jit::Module module("trainee");
  at::manual_seed(3);
  for (const std::string name : {"a", "b"}) {
    module.register_parameter(name + "_weight", at::randn({8, 8}) * 0.3, false);
    module.register_parameter(name + "_bias", at::zeros({8}), false);
  }
  module.register_attribute("scale", c10::FloatType::get(), 1.5);
  if (has_batch_norm) {
    module.register_buffer("mean", at::zeros({8}));
    module.register_buffer("var", at::ones({8}));
  }
  module.define(forward);
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.set_requires_grad(true);
  }
  return module;
}

const char* const kMlp = R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias))
    return torch.linear(h, self.b_weight, self.b_bias) * self.scale
)";
const char* const kLoop = R"(
def forward(self, x):
    h = torch.zeros_like(x)
    for t in range(6):
        if t % 2 == 0:
            h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias) + torch.linear(h, self.b_weight))
        else:
            h = h * torch.sigmoid(h + self.b_bias)
    return h
)";
const char* const kNorm = R"(
def forward(self, x):
    h = torch.batch_norm(torch.linear(x, self.a_weight), self.b_bias + 1, self.a_bias, self.mean, self.var, True, 0.1, 1e-5, True)
    return torch.linear(torch.dropout(torch.relu(h), 0.2, True), self.b_weight)
)";

std::vector<at::Tensor> parameters_of(const torch::jit::Module& module) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : module.parameters()) {
    parameters.push_back(parameter);
  }
  return parameters;
}

torch::jit::Module copy_of(const torch::jit::Module& module) {
  const at::NoGradGuard no_grad;
  torch::jit::Module copy = module.deepcopy();
  for (const at::Tensor& parameter : copy.parameters()) {
    parameter.set_requires_grad(true);
  }
  return copy;
}

std::vector<at::Tensor> state_of(const torch::jit::Module& module) {
  std::vector<at::Tensor> state = parameters_of(module);
  for (const at::Tensor& buffer : module.buffers()) {
    state.push_back(buffer);
  }
  return state;
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;
std::unique_ptr<torch::optim::Optimizer> adam(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(0.01));
}
std::unique_ptr<torch::optim::Optimizer> sgd(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.1).momentum(0.9));
}

// Trains one module by TrainStep and a copy by LibTorch.
class TwoTrainings {
 public:
  TwoTrainings(const torch::jit::Module& module, const MakeOptimizer& make, const TrainOptions& options = {},
               TrainStep::Loss loss = [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); })
      : options_(options), loss_(std::move(loss)), ours_(module), theirs_(copy_of(module)) {
    our_optimizer_ = make(parameters_of(ours_));
    their_optimizer_ = make(parameters_of(theirs_));
    step_ = std::make_unique<TrainStep>(accelerate(ours_, Options().compile(CompileMode::kBlocking)), loss_, *our_optimizer_,
                                        options_);
  }

  void train(int64_t batch, uint64_t seed) {
    at::manual_seed(seed);
    const at::Tensor x = at::randn({batch, 8});
    const at::Tensor target = at::randn({batch, 8}).softmax(1);
    at::manual_seed(seed);
    const at::Tensor found = (*step_)({x}, {target});
    at::manual_seed(seed);
    const at::Tensor expected = eager(x, target);
    EXPECT_TRUE(at::allclose(found, expected, tolerance(), tolerance())) << "loss of step " << seed << ": " << found << expected;
    EXPECT_FALSE(found.requires_grad());
    const auto states = std::pair(state_of(ours_), state_of(theirs_));
    for (size_t i = 0; i < states.first.size(); ++i) {
      EXPECT_TRUE(at::allclose(states.first[i], states.second[i], tolerance(), tolerance()))
          << "tensor " << i << " after step " << seed;
    }
  }

  TrainStep& step() { return *step_; }
  torch::jit::Module& ours() { return ours_; }
  torch::jit::Module& theirs() { return theirs_; }
  torch::optim::Optimizer& our_optimizer() { return *our_optimizer_; }
  torch::optim::Optimizer& their_optimizer() { return *their_optimizer_; }

 private:
  double tolerance() const { return options_.autocast() ? 0.02 : 1e-4; }

  at::Tensor eager(const at::Tensor& x, const at::Tensor& target) {
    if (calls_ == 0) {
      their_optimizer_->zero_grad();
    }
    at::Tensor loss;
    {
      const bool casts = options_.autocast().has_value();
      at::autocast::set_autocast_enabled(at::kCPU, casts);
      if (casts) {
        at::autocast::set_autocast_dtype(at::kCPU, *options_.autocast());
      }
      loss = loss_(theirs_.forward({x}).toTensor(), target);
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
    }
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

  const TrainOptions options_;
  const TrainStep::Loss loss_;
  torch::jit::Module ours_;
  torch::jit::Module theirs_;
  std::unique_ptr<torch::optim::Optimizer> our_optimizer_;
  std::unique_ptr<torch::optim::Optimizer> their_optimizer_;
  std::unique_ptr<TrainStep> step_;
  size_t calls_ = 0;
};

TEST(TrainStep, TrainsLikeALoopOfLibTorch) {
  for (const auto& [source, has_norm] : {std::pair(kMlp, false), std::pair(kLoop, false), std::pair(kNorm, true)}) {
    for (const MakeOptimizer& make : {MakeOptimizer(adam), MakeOptimizer(sgd)}) {
      TwoTrainings both(module_of(source, has_norm), make);
      for (uint64_t step = 0; step < 20; ++step) {
        both.train(/*batch=*/5, step);
      }
      const TrainExplanation explanation = both.step().explain();
      EXPECT_EQ(explanation.by_plan, 19U) << source << (explanation.reasons.empty() ? "" : explanation.reasons.front().first);
      EXPECT_EQ(explanation.plans.size(), 1U) << source;
    }
  }
}

TEST(TrainStep, ClipsAccumulatesAndCasts) {
  for (const TrainOptions& options :
       {TrainOptions().clip_norm(0.05), TrainOptions().clip_value(0.001), TrainOptions().accumulate(3),
        TrainOptions().accumulate(2).clip_norm(0.1), TrainOptions().autocast(at::kBFloat16)}) {
    TwoTrainings both(module_of(kMlp), sgd, options);
    for (uint64_t step = 0; step < 12; ++step) {
      both.train(/*batch=*/4, step);
    }
    EXPECT_EQ(both.step().explain().by_plan, 11U);
  }
}

TEST(TrainStep, RecordsWhatChangesAgain) {
  TwoTrainings both(module_of(kMlp), adam);
  uint64_t step = 0;
  const auto train = [&](int64_t batch, int times) {
    for (int i = 0; i < times; ++i) {
      both.train(batch, step++);
    }
  };
  train(4, 3);
  train(2, 2);  // another size
  train(4, 2);
  EXPECT_EQ(both.step().explain().plans.size(), 2U);
  both.ours().setattr("scale", 0.5);  // an attribute
  both.theirs().setattr("scale", 0.5);
  train(4, 2);
  EXPECT_EQ(both.step().explain().plans.size(), 3U);
  for (torch::optim::Optimizer* optimizer : {&both.our_optimizer(), &both.their_optimizer()}) {
    optimizer->param_groups()[0].options().set_lr(0.001);  // a schedule
  }
  train(4, 2);
  EXPECT_EQ(both.step().explain().plans.size(), 3U);
  both.ours().attr("a_bias").toTensor().set_requires_grad(false);  // a parameter is frozen
  both.theirs().attr("a_bias").toTensor().set_requires_grad(false);
  train(4, 2);
  EXPECT_EQ(both.step().explain().plans.size(), 4U);
}

TEST(TrainStep, TakesBatchesThatAreSlices) {
  torch::jit::Module module = module_of(kMlp);
  torch::jit::Module copy = copy_of(module);
  const auto ours = sgd(parameters_of(module));
  const auto theirs = sgd(parameters_of(copy));
  TrainStep step(accelerate(module, Options().compile(CompileMode::kBlocking)),
                 [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); }, *ours);
  const at::Tensor rows = at::randn({22, 16});
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int64_t first = 0; first < 22; first += 4) {
      const at::Tensor batch = rows.slice(0, first, first + 4);
      const at::Tensor x = batch.slice(1, 0, 8);
      const at::Tensor target = batch.slice(1, 8);
      step({x}, {target});
      theirs->zero_grad();
      at::mse_loss(copy.forward({x}).toTensor(), target).backward();
      theirs->step();
      EXPECT_TRUE(at::allclose(module.attr("a_weight").toTensor(), copy.attr("a_weight").toTensor(), 1e-4, 1e-6));
    }
  }
  EXPECT_EQ(step.explain().plans.size(), 2U);  // the last batch is smaller
  EXPECT_EQ(step.explain().by_plan, 15U);      // all but the first, and the smaller ones of two epochs
}

TEST(TrainStep, RunsWhatItCannotRecord) {
  TwoTrainings both(module_of(kMlp), sgd, {}, [](const at::Tensor& y, const at::Tensor& target) {
    const at::Tensor loss = at::mse_loss(y, target);
    return loss.item<float>() > 0.5 ? loss * 2 : loss;
  });
  for (uint64_t step = 0; step < 6; ++step) {
    both.train(4, step);
  }
  const TrainExplanation explanation = both.step().explain();
  EXPECT_EQ(explanation.by_plan, 0U);
  bool tells_why = false;
  for (const auto& [reason, times] : explanation.reasons) {
    tells_why = tells_why || reason.find("reads a number from a tensor") != std::string::npos;
  }
  EXPECT_TRUE(tells_why);
}

TEST(TrainStep, WritesTheAttributesOfTheModule) {
  TwoTrainings both(module_of(R"(
def forward(self, x):
    self.scale = self.scale * 0.9
    self.mean = self.mean + x.mean(0)
    return torch.linear(x + self.mean, self.a_weight, self.a_bias) * self.scale
)",
                              /*has_batch_norm=*/true),
                    sgd);
  for (uint64_t step = 0; step < 6; ++step) {
    both.train(4, step);
    EXPECT_EQ(both.ours().attr("scale").toDouble(), both.theirs().attr("scale").toDouble()) << step;
  }
  EXPECT_EQ(both.step().explain().by_plan, 0U);
  EXPECT_EQ(both.step().explain().reasons.front().first, "a call changes an attribute of the module");
}

TEST(TrainStep, TrainsRecurrentLayersOfLibTorch) {
  TwoTrainings both(module_of(R"(
def forward(self, x):
    h = torch.zeros([1, x.size(0), 2])
    weights = [self.a_weight, self.b_weight[:, 0:2].contiguous(), self.a_bias, self.b_bias]
    y = torch.lstm(x.unsqueeze(1), [h, h], weights, True, 1, 0.0, True, False, True)[0]
    return y.squeeze(1).repeat([1, 4])
)"),
                    adam);
  for (uint64_t step = 0; step < 6; ++step) {
    both.train(4, step);
  }
}

TEST(TrainStep, LeavesParametersAloneWhenAStepFails) {
  torch::jit::Module module = module_of(kMlp);
  const auto optimizer = sgd(parameters_of(module));
  TrainStep step(accelerate(module), [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); },
                 *optimizer);
  const at::Tensor before = module.attr("a_weight").toTensor().clone();
  EXPECT_THROW(step({at::randn({4, 7})}, {at::randn({4, 8})}), c10::Error);
  EXPECT_THROW(step({at::randn({4, 8})}, {at::randn({4, 8}), at::ones({1})}), c10::Error);
  EXPECT_TRUE(at::equal(module.attr("a_weight").toTensor(), before));
  step({at::randn({4, 8})}, {at::randn({4, 8})});
  EXPECT_FALSE(at::equal(module.attr("a_weight").toTensor(), before));
  EXPECT_FALSE(module.attr("a_weight").toTensor().grad().defined());
  TrainStep no_loss(accelerate(module), [](const at::Tensor& y, const at::Tensor&) { return y.detach().sum(); }, *optimizer);
  EXPECT_THROW(no_loss({at::randn({4, 8})}, {at::randn({4, 8})}), c10::Error);
}

}  // namespace
}  // namespace sconce
