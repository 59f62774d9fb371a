// Steps whose plans update the parameters: parameters, optimizer and failures are those of a loop of LibTorch's own.
#include "tests/training/optimizer_pair.h"
#include "tests/training/two_trainings.h"
#include "tools/sconce/bench/counted_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <sstream>
#include <string>

namespace sconce::testing {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

TrainStep::Loss mean_square() {
  return [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); };
}
Options exact() { return Options().exact(true).compile(CompileMode::kBlocking); }

void expect_equal_states(TwoTrainings& both) {
  const auto own = parameters_of(both.ours());
  const auto theirs = parameters_of(both.theirs());
  for (size_t i = 0; i < own.size(); ++i) {
    const Tensors found = states_of(both.our_optimizer(), own[i]);
    const Tensors expected = states_of(both.their_optimizer(), theirs[i]);
    ASSERT_EQ(found.size(), expected.size()) << "parameter " << i;
    for (size_t k = 0; k < found.size(); ++k) {
      EXPECT_TRUE(at::equal(found[k], expected[k])) << "state " << k << " of parameter " << i;
    }
    EXPECT_EQ(own[i]._version(), theirs[i]._version()) << "parameter " << i;
    EXPECT_FALSE(own[i].grad().defined());
  }
}

// Trains with random batches. Both trainings begin at the same versions.
void train(TwoTrainings& both, uint64_t from, uint64_t to) {
  for (uint64_t step = from; step < to; ++step) {
    both.train(/*batch=*/5, step);
  }
}

class StepUpdates : public ::testing::TestWithParam<OptimizerCase> {};
INSTANTIATE_TEST_SUITE_P(All, StepUpdates, ::testing::ValuesIn(all_optimizer_cases()),
                         [](const auto& made) { return made.param.name; });

TEST_P(StepUpdates, AreThoseOfTorchOptim) {
  TwoTrainings both(two_layers(kMlp), GetParam().make, {}, mean_square(), exact());
  train(both, 0, 12);
  expect_equal_states(both);
  const TrainExplanation explanation = both.step().explain();
  EXPECT_EQ(explanation.updated_by_plan, 11U);
  EXPECT_EQ(explanation.optimizer.captured_steps, 12U);
  EXPECT_EQ(explanation.optimizer.captured_updates, 48U);
}

TEST_P(StepUpdates, ComputeWithKernels) {
  TwoTrainings both(two_layers(kNorm, /*has_batch_norm=*/true), GetParam().make);
  train(both, 0, 12);
  EXPECT_EQ(both.step().explain().updated_by_plan, 11U);
}

TEST_P(StepUpdates, ClipGradients) {
  for (const TrainOptions& options :
       {TrainOptions().clip_norm(0.05), TrainOptions().clip_value(0.001), TrainOptions().clip_norm(0.05).clip_value(0.01)}) {
    TwoTrainings both(two_layers(kMlp), GetParam().make, options, mean_square(), exact());
    train(both, 0, 5);
    expect_equal_states(both);
    EXPECT_EQ(both.step().explain().updated_by_plan, 4U);
  }
}

// The optimizer may be changed between steps as ever.
TEST(StepUpdate, ReadsOptionsAndStatesInEachStep) {
  TwoTrainings both(two_layers(kMlp), adam, {}, mean_square(), exact());
  train(both, 0, 4);
  const auto change = [&](const std::function<void(Optimizer&)>& what) {
    what(both.our_optimizer());
    what(both.their_optimizer());
  };
  change([](Optimizer& optimizer) { optimizer.param_groups()[0].options().set_lr(0.002); });
  train(both, 4, 6);
  change([](Optimizer& optimizer) { optimizer.state().clear(); });  // states are made again
  train(both, 6, 8);
  EXPECT_EQ(both.step().explain().plans.size(), 1U);
  EXPECT_EQ(both.step().explain().updated_by_plan, 7U);
  std::ostringstream saved;
  torch::serialize::OutputArchive archive;
  both.our_optimizer().save(archive);
  archive.save_to(saved);
  train(both, 8, 9);
  change([&](Optimizer& optimizer) {
    std::istringstream stream(saved.str());
    torch::serialize::InputArchive input;
    input.load_from(stream);
    optimizer.load(input);
  });
  train(both, 9, 11);
  EXPECT_EQ(both.step().explain().plans.size(), 1U);
  expect_equal_states(both);
}

TEST(StepUpdate, RecordsAgainWhenTheUpdateIsAnotherOne) {
  TwoTrainings both(two_layers(kMlp), adam, {}, mean_square(), exact());
  train(both, 0, 3);
  for (Optimizer* optimizer : {&both.our_optimizer(), &both.their_optimizer()}) {
    static_cast<torch::optim::AdamOptions&>(optimizer->param_groups()[0].options()).weight_decay(0.1);
  }
  train(both, 3, 6);
  EXPECT_EQ(both.step().explain().plans.size(), 2U);
  for (Optimizer* optimizer :
       {&both.our_optimizer(), &both.their_optimizer()}) {  // the last parameter, in a group of its own
    std::vector<OptimizerParamGroup>& groups = optimizer->param_groups();
    const at::Tensor last = groups[0].params().back();
    groups[0].params().pop_back();
    groups.emplace_back(std::vector<at::Tensor>{last}, std::make_unique<torch::optim::AdamOptions>(0.5));
  }
  train(both, 6, 9);
  EXPECT_EQ(both.step().explain().plans.size(), 3U);
  EXPECT_EQ(both.step().explain().updated_by_plan, 6U);
  expect_equal_states(both);
}

TEST(StepUpdate, LeavesParametersWithoutGradientAlone) {
  TwoTrainings both(two_layers(R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias))
    return torch.linear(h, self.a_weight)
)"),
                    sgd, {}, mean_square(), exact());
  train(both, 0, 5);
  expect_equal_states(both);
  EXPECT_EQ(both.step().explain().optimizer.captured_updates, 10U);
}

TEST(StepUpdate, IsLeftToTheOptimizerWhereGradientsAreWanted) {
  TwoTrainings both(two_layers(kMlp), sgd, TrainOptions().keep_gradients(true), mean_square(), exact());
  train(both, 0, 4);
  EXPECT_EQ(both.step().explain().updated_by_plan, 0U);
  EXPECT_EQ(both.step().explain().by_plan, 3U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(at::equal(parameters_of(both.ours())[i].grad(), parameters_of(both.theirs())[i].grad()));
  }
}

// What shares memory with a parameter must be read before the update, or after it.
TEST(StepUpdate, TakesArgumentsThatShareMemoryWithParameters) {
  TwoTrainings both(two_layers(kMlp), sgd, {}, mean_square(), exact());
  train(both, 0, 2);
  const auto weight = [](const torch::jit::Module& module) { return module.attr("a_weight").toTensor().detach(); };
  at::manual_seed(7);
  const at::Tensor target = at::randn({8, 8});
  for (uint64_t step = 2; step < 8; ++step) {
    both.train_on(weight(both.ours()), weight(both.theirs()), target, step);
  }
  EXPECT_EQ(both.step().explain().updated_by_plan, 1U);
  EXPECT_EQ(both.step().explain().by_plan, 6U);
  expect_equal_states(both);
}

TEST(StepUpdate, TrainsAParameterThatIsThereTwice) {
  TwoTrainings both(
      two_layers(kMlp),
      [](std::vector<at::Tensor> parameters) {
        parameters.push_back(parameters.front());
        return sgd(std::move(parameters));
      },
      {}, mean_square(), exact());
  train(both, 0, 4);
  EXPECT_EQ(both.step().explain().updated_by_plan, 0U);
  expect_equal_states(both);
}

// A step that fails in its plan has written no parameter, no state and no step count.
TEST(StepUpdate, HasWrittenNothingWhenTheStepFails) {
  const char* const source = R"(
def forward(self, x):
    rows = torch.embedding(self.a_weight, x[:, 0].mul(0).add(x[:, 7].sign().clamp_min(0) * 99).long())
    return torch.linear(torch.tanh(rows + torch.linear(x, self.b_weight)), self.a_weight, self.b_bias)
)";
  for (const MakeOptimizer& make : {MakeOptimizer(adam), MakeOptimizer(sgd)}) {
    TwoTrainings both(two_layers(source), make, {}, mean_square(), exact());
    const auto batch = [](double last) {
      at::Tensor x = at::randn({5, 8});
      x.select(1, 7).fill_(last);
      return x;
    };
    const at::Tensor target = at::zeros({5, 8});
    uint64_t step = 0;
    for (; step < 3; ++step) {
      const at::Tensor x = batch(-1);
      both.train_on(x, x, target, step);
    }
    EXPECT_EQ(both.step().explain().updated_by_plan, 2U);
    EXPECT_THROW(both.step()({batch(1)}, {target}), c10::Error);  // row 99
    EXPECT_EQ(both.step().explain().by_plan, 3U);
    expect_equal_states(both);
    for (; step < 6; ++step) {
      const at::Tensor x = batch(-1);
      both.train_on(x, x, target, step);
    }
    expect_equal_states(both);
  }
}

// The gradient of a layer is freed where the layer is updated: a step never holds those of all layers.
TEST(StepUpdate, FreesGradientsOfLargeLayers) {
  constexpr int64_t kWidth = 256;
  constexpr size_t kLayers = 8;
  torch::jit::Module module("large");
  std::string source = "def forward(self, x):\n";
  for (size_t i = 0; i < kLayers; ++i) {
    const std::string name = "w" + std::to_string(i);
    module.register_parameter(name, at::randn({kWidth, kWidth}) * 0.05, false);
    source += "    x = torch.relu(torch.linear(x, self." + name + "))\n";
  }
  module.define(source + "    return x\n");
  for (const at::Tensor& weight : module.parameters()) {
    weight.set_requires_grad(true);
  }
  const auto optimizer = adam(parameters_of(module));
  cli::CountedMemory::begin();
  TrainStep step(accelerate(module, Options().compile(CompileMode::kBlocking)), mean_square(), *optimizer);
  const at::Tensor x = at::randn({2, kWidth});
  const size_t of_layer = kWidth * kWidth * sizeof(float);
  const auto peak = [&] {
    const size_t before = cli::CountedMemory::living_bytes();
    cli::CountedMemory::restart_peak();
    step({x}, {x});
    return cli::CountedMemory::peak_bytes() - before;
  };
  EXPECT_GT(peak(), kLayers * of_layer);  // recorded
  peak();                                 // learns sizes
  EXPECT_LT(peak(), 2 * of_layer);
}

}  // namespace
}  // namespace sconce::testing
