// sconce::TrainStep: parameters, buffers and losses are those of a loop of LibTorch's own, step by step.
#include "tests/training/two_trainings.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/lbfgs.h>

#include <string>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;

const TrainStep::Loss mse = [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); };

// Returns the message of the error that the call throws.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(TrainStep, TrainsLikeALoopOfLibTorch) {
  for (const auto& [source, has_norm] :
       {std::pair(kMlp, false), std::pair(kLoop, false), std::pair(kRows, false), std::pair(kNorm, true)}) {
    for (const MakeOptimizer& make : {MakeOptimizer(adam), MakeOptimizer(sgd)}) {
      TwoTrainings both(two_layers(source, has_norm), make);
      for (uint64_t step = 0; step < 20; ++step) {
        both.train(/*batch=*/5, step);
      }
      const TrainExplanation explanation = both.step().explain();
      EXPECT_EQ(explanation.by_plan, 19U) << source
                                          << (explanation.reasons.empty() ? "" : explanation.reasons.front().first);
      EXPECT_EQ(explanation.plans.size(), 1U) << source;
    }
  }
}

// Options of LBFGS: without a line search, with one, and with a history that is full. In float64, because differences of
// gradients enlarge rounding errors.
TEST(TrainStep, EvaluatesTheLossAsOftenAsLBFGSLikes) {
  using torch::optim::LBFGSOptions;
  for (const LBFGSOptions& lbfgs : {LBFGSOptions(0.1).max_iter(5), LBFGSOptions(1).line_search_fn("strong_wolfe"),
                                    LBFGSOptions(0.1).max_iter(6).history_size(2)}) {
    const MakeOptimizer make = [&](std::vector<at::Tensor> parameters) {
      return std::make_shared<torch::optim::LBFGS>(std::move(parameters), lbfgs);
    };
    for (const auto& [source, has_norm] : {std::pair(kMlp, false), std::pair(kLoop, false), std::pair(kNorm, true)}) {
      torch::jit::Module module = two_layers(source, has_norm);
      module.to(at::kDouble);
      TwoTrainings both(module, make, TrainOptions().keep_gradients(has_norm));
      for (uint64_t step = 0; step < 4; ++step) {
        at::manual_seed(step);
        const at::Tensor x = at::randn({6, 8}, at::kDouble);
        both.train_on(x, x, at::randn({6, 8}, at::kDouble).softmax(1), step);
        EXPECT_EQ(both.ours().attr("a_weight").toTensor().grad().defined(), has_norm);
      }
      const TrainExplanation explanation = both.step().explain();
      EXPECT_EQ(explanation.eager, 1U) << source;  // the first evaluation was recorded
      EXPECT_GE(explanation.by_plan, 15U) << source;
      EXPECT_EQ(explanation.optimizer.steps, 4U);
    }
  }
}

TEST(TrainStep, RefusesWhatLBFGSCannotHave) {
  const torch::jit::Module module = two_layers(kMlp);
  torch::optim::LBFGS lbfgs(parameters_of(module));
  for (const auto& [options, reason] :
       {std::pair(TrainOptions().clip_norm(1), "clipped gradients are not those of the loss"),
        std::pair(TrainOptions().clip_value(1), "clipped gradients are not those of the loss"),
        std::pair(TrainOptions().accumulate(2), "give all examples in one call")}) {
    EXPECT_THAT(error_of([&, each = options] { TrainStep(accelerate(module), mse, lbfgs, each); }), HasSubstr(reason));
  }
  TrainStep step(accelerate(module), mse, lbfgs);
  EXPECT_THAT(error_of([&] { step({at::randn({3, 8})}, {at::randn({3, 8})}, 0.5); }), HasSubstr("leave out the share"));
}

TEST(TrainStep, TrainsTheMethodThatItIsGiven) {
  const std::string methods = std::string(kMlp) + R"(
def rows_of_two(self, x):
    return torch.linear(torch.relu(torch.linear(x, self.b_weight)), self.a_weight, self.b_bias)
)";
  TwoTrainings both(two_layers(methods), adam, TrainOptions().method("rows_of_two"));
  for (uint64_t step = 0; step < 6; ++step) {
    both.train(/*batch=*/5, step);
  }
  EXPECT_EQ(both.step().explain().by_plan, 5U);
  EXPECT_THAT(
      error_of([&] { TrainStep(accelerate(both.ours()), mse, both.our_optimizer(), TrainOptions().method("rows")); }),
      HasSubstr("the module has no method 'rows'; it has: forward, rows_of_two"));
}

TEST(TrainStep, ClipsAccumulatesAndCasts) {
  for (const TrainOptions& options :
       {TrainOptions().clip_norm(0.05), TrainOptions().clip_value(0.001), TrainOptions().accumulate(3),
        TrainOptions().accumulate(2).clip_norm(0.1), TrainOptions().autocast(at::kBFloat16)}) {
    TwoTrainings both(two_layers(kMlp), sgd, options);
    for (uint64_t step = 0; step < 12; ++step) {
      both.train(/*batch=*/4, step);
    }
    EXPECT_EQ(both.step().explain().by_plan, 11U);
  }
}

TEST(TrainStep, RecordsWhatChangesAgain) {
  TwoTrainings both(two_layers(kMlp), adam);
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
  torch::jit::Module module = two_layers(kMlp);
  torch::jit::Module copy = copy_of(module);
  const auto ours = sgd(parameters_of(module));
  const auto theirs = sgd(parameters_of(copy));
  TrainStep step(
      accelerate(module, Options().compile(CompileMode::kBlocking)),
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
  EXPECT_EQ(step.explain().by_plan, 16U);      // all but the first, and the first smaller one
}

TEST(TrainStep, RunsWhatItCannotRecord) {
  TwoTrainings both(two_layers(kMlp), sgd, {}, [](const at::Tensor& y, const at::Tensor& target) {
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

// A branch on a number of a tensor, behind statistics and random numbers, which a run that reads another number undoes.
torch::jit::Module with_branch(const std::string& condition) {
  return two_layers(R"(
def forward(self, x):
    h = torch.batch_norm(torch.linear(x, self.a_weight), self.b_bias + 1, self.a_bias, self.mean, self.var, True, 0.1, 1e-5, True)
    h = torch.dropout(h, 0.2, True)
    if bool()" + condition +
                        R"():
        h = torch.relu(h)
    return torch.linear(h, self.b_weight)
)",
                    /*has_batch_norm=*/true);
}

TEST(TrainStep, RunsByAPlanWhileTheModuleReadsTheSameNumbers) {
  TwoTrainings both(with_branch("x.sum() > 1e6"), adam, TrainOptions().clip_norm(0.5));
  for (uint64_t step = 0; step < 8; ++step) {
    both.train(4, step);
  }
  EXPECT_EQ(both.step().explain().by_plan, 7U);
}

TEST(TrainStep, UndoesAPlanThatReadsOtherNumbers) {
  TwoTrainings both(with_branch("x[0, 0] > 0.0"), sgd);
  for (uint64_t step = 0; step < 24; ++step) {
    both.train(4, step);
  }
  const TrainExplanation explanation = both.step().explain();
  bool tells_why = false;
  for (const auto& [reason, times] : explanation.reasons) {
    tells_why = tells_why || reason == "the module reads other numbers from tensors than in the recorded call";
  }
  EXPECT_TRUE(tells_why);
  EXPECT_GT(explanation.by_plan, 0U);
}

TEST(TrainStep, WritesTheAttributesOfTheModule) {
  TwoTrainings both(two_layers(R"(
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

// The second step goes back through the first one's graph, which backward has freed.
TEST(TrainStep, LeavesHistoryToWhatTheModuleKeeps) {
  const torch::jit::Module module = two_layers(R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a_weight) + torch.linear(self.mean, self.b_weight))
    self.mean = h.mean(0)
    return h
)",
                                               /*has_batch_norm=*/true);
  for (const bool by_step : {false, true}) {
    torch::jit::Module trained = copy_of(module);
    const auto optimizer = sgd(parameters_of(trained));
    TrainStep step(
        accelerate(trained, Options().compile(CompileMode::kBlocking)),
        [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); }, *optimizer);
    const at::Tensor x = at::ones({4, 8});
    const auto take = [&] {
      if (by_step) {
        step({x}, {at::zeros({4, 8})});
      } else {
        at::mse_loss(trained.forward({x}).toTensor(), at::zeros({4, 8})).backward();
      }
    };
    take();
    EXPECT_TRUE(trained.attr("mean").toTensor().requires_grad()) << by_step;
    EXPECT_THROW(take(), c10::Error) << by_step;
  }
}

TEST(TrainStep, TrainsRecurrentLayersOfLibTorch) {
  TwoTrainings both(two_layers(R"(
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
  EXPECT_EQ(both.step().explain().by_plan, 5U);
}

// Written out, a layer has a product for each time in the gradient of each weight. Where batches come first, LibTorch
// transposes the result of the layer in place.
TEST(TrainStep, TrainsRecurrentLayersThatAreWrittenOut) {
  for (const std::string layer : {"torch.gru(x.reshape(2, 6, 8), h, weights, True, 1, 0.0, True, False, True)[0]",
                                  "torch.gru(x.reshape(6, 2, 8), h, weights, True, 1, 0.0, True, False, False)[0]"}) {
    TwoTrainings both(two_layers(R"(
def forward(self, x):
    h = torch.zeros([1, 2, 2])
    weights = [self.a_weight[0:6], self.b_weight[0:6, 0:2].contiguous(), self.a_bias[0:6], self.b_bias[0:6]]
    y = )" + layer + R"(
    return y.reshape(12, 2).repeat([1, 4])
)"),
                      adam);
    for (uint64_t step = 0; step < 8; ++step) {
      both.train(12, step);
    }
    EXPECT_EQ(both.step().explain().by_plan, 7U) << layer;
  }
}

// Layers on packed sequences read the number of sequences per time from memory, above all operators.
TEST(TrainStep, TrainsRecurrentLayersOnPackedSequences) {
  for (const std::string layer : {"torch.lstm(data, batches, [h, h], weights, True, 1, 0.0, True, False)[0]",
                                  "torch.rnn_tanh(data, batches, h, weights, True, 1, 0.0, True, False)[0]"}) {
    const std::string gates = layer.find("lstm") != std::string::npos ? "self.b_weight[:, 0:2]" : "self.b_weight[0:2, 0:2]";
    const std::string rows = layer.find("lstm") != std::string::npos ? "" : "[0:2]";
    TwoTrainings both(two_layers(R"(
def forward(self, x):
    y = torch.batch_norm(x, None, None, self.mean, self.var, True, 0.1, 1e-5, False)
    data, batches = torch._pack_padded_sequence(y.reshape(2, 2, 8), torch.tensor([2, 1]), False)
    h = torch.zeros([1, 2, 2])
    weights = [self.a_weight)" + rows +
                                     ", " + gates + ".contiguous(), self.a_bias" + rows + ", self.b_bias" + rows + R"(]
    y = )" + layer + R"(
    return torch._pad_packed_sequence(y, batches, False, 0.0, 2)[0].reshape(4, 2).repeat([1, 4])
)",
                                 /*has_batch_norm=*/true),
                      adam);
    for (uint64_t step = 0; step < 6; ++step) {
      both.train(4, step);
    }
    const TrainExplanation explanation = both.step().explain();
    EXPECT_EQ(explanation.by_plan, 0U);
    EXPECT_EQ(explanation.reasons.back().first, "it reads the memory of a tensor");
  }
}

TEST(TrainStep, LeavesParametersAloneWhenAStepFails) {
  torch::jit::Module module = two_layers(kMlp);
  const auto optimizer = sgd(parameters_of(module));
  TrainStep step(
      accelerate(module), [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); }, *optimizer);
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
}  // namespace sconce::testing
