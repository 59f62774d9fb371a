// A sharded optimizer updates as a whole one does, to the bit, and each rank has its part of the states.
#include "tests/parallel/optimizers.h"
#include "tests/support/ranks.h"
#include "tests/training/two_trainings.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <random>
#include <sstream>

namespace sconce {
namespace {

using testing::copy_of;
using testing::mse;
using testing::parameters_of;
using testing::run_all_ranks;

struct Sharded {
  std::vector<at::Tensor> parameters;  // of rank 0, which all ranks have
  std::vector<size_t> state_bytes;     // per rank
  std::string optimizer;               // saved by rank 0
  std::string module;                  // the same
};

struct Plan {
  int world;
  bool shards = true;
  int first = 0;  // step
  int last = 12;
  bool by_chance = false;  // each rank gives arguments that no plan serves
  std::string optimizer;   // to go on from; empty to begin
  std::string module;
};

const torch::jit::Module& start() {
  static const torch::jit::Module module = testing::two_layers(R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias))
    return torch.linear(h, self.b_weight.t(), self.b_bias)
)");
  return module;
}

Sharded train(const testing::MakeOptimizer& make, const TrainOptions& options, const Plan& plan) {
  Sharded result;
  result.state_bytes.resize(static_cast<size_t>(plan.world));
  std::vector<std::vector<at::Tensor>> of_ranks(static_cast<size_t>(plan.world));
  run_all_ranks(plan.world,
                [&](const DataParallel& ranks) {
                  const auto rank = static_cast<size_t>(ranks.rank());
                  torch::jit::Module module = copy_of(start());
                  if (!plan.module.empty()) {
                    std::istringstream file(plan.module);
                    std::vector<at::Tensor> tensors;
                    torch::load(tensors, file);
                    const at::NoGradGuard no_grad;
                    for (size_t i = 0; i < tensors.size(); ++i) {
                      parameters_of(module)[i].copy_(tensors[i]);
                    }
                  }
                  const auto optimizer = make(parameters_of(module));
                  if (!plan.optimizer.empty()) {
                    std::istringstream file(plan.optimizer);
                    torch::load(*optimizer, file);
                  }
                  TrainStep step(accelerate(module, Options().time_choices(false).compile(CompileMode::kBlocking)), mse,
                                 *optimizer, TrainOptions(options).data_parallel(ranks).shard_optimizer(plan.shards));
                  std::mt19937 chance(static_cast<unsigned>(ranks.rank()) + 7);
                  for (int i = plan.first; i < plan.last; ++i) {
                    const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(i) + 1);
                    const at::Tensor whole = at::randn({24, 8}, generator);
                    at::Tensor x = whole.chunk(plan.world)[rank].clone();
                    if (plan.by_chance && chance() % 3 == 0) {
                      x = x.requires_grad_() * 1;
                    }
                    step({x}, {x.detach().sin()});
                  }
                  result.state_bytes[rank] = step.explain().state_bytes;
                  step.unshard_optimizer();
                  for (const at::Tensor& parameter : parameters_of(module)) {
                    of_ranks[rank].push_back(parameter.detach().clone());
                  }
                  EXPECT_EQ(optimizer->param_groups()[0].params().size(), parameters_of(module).size());
                  if (rank == 0) {
                    std::ostringstream saved;
                    torch::save(*optimizer, saved);
                    result.optimizer = saved.str();
                    std::ostringstream tensors;
                    torch::save(of_ranks[0], tensors);
                    result.module = tensors.str();
                  }
                },
                {.timeout = std::chrono::seconds(60), .bucket_bytes = 300, .first_bucket_bytes = 100});
  for (const auto& parameters : of_ranks) {
    EXPECT_EQ(parameters.size(), of_ranks[0].size());
    for (size_t i = 0; i < parameters.size() && i < of_ranks[0].size(); ++i) {
      EXPECT_TRUE(at::equal(parameters[i], of_ranks[0][i])) << i;
    }
  }
  result.parameters = of_ranks[0];
  return result;
}

void expect_equal(const Sharded& a, const Sharded& b) {
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (size_t i = 0; i < a.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(a.parameters[i], b.parameters[i])) << i << ": " << (a.parameters[i] - b.parameters[i]).abs().max();
  }
}

TEST(OptimizerShards, UpdateAsAWholeOptimizer) {
  for (const int world : {2, 3}) {
    for (const testing::NamedOptimizer& optimizer : testing::optimizers()) {
      for (const TrainOptions& options : {TrainOptions(), TrainOptions().clip_norm(0.05)}) {
        SCOPED_TRACE(std::string(optimizer.name) + ", " + std::to_string(world) + " ranks" +
                     (options.clip_norm() ? ", clipped" : ""));
        for (const bool by_chance : {false, true}) {
          const auto plan = [&](bool shards) { return Plan{.world = world, .shards = shards, .by_chance = by_chance}; };
          expect_equal(train(optimizer.make, options, plan(true)), train(optimizer.make, options, plan(false)));
        }
      }
    }
  }
}

TEST(OptimizerShards, HaveTheStatesOfTheirPart) {
  for (const int world : {2, 4}) {
    const Sharded sharded = train(testing::adam, {}, {.world = world});
    size_t whole = 0;
    for (const at::Tensor& parameter : sharded.parameters) {
      whole += 2 * parameter.nbytes();
    }
    size_t sum = 0;
    for (const size_t bytes : sharded.state_bytes) {
      sum += bytes;
    }
    EXPECT_EQ(sum, whole) << world;
  }
}

// What some ranks have saved, any other number of them goes on from, with the bits that it has by itself.
TEST(OptimizerShards, GoOnWithOtherNumbersOfRanks) {
  for (const testing::NamedOptimizer& optimizer : testing::optimizers()) {
    SCOPED_TRACE(optimizer.name);
    const Sharded half = train(optimizer.make, {}, {.world = 4, .last = 6});
    for (const int world : {1, 2, 3}) {
      SCOPED_TRACE(world);
      const Sharded by_shards =
          train(optimizer.make, {}, {.world = world, .first = 6, .optimizer = half.optimizer, .module = half.module});
      const Sharded whole =
          train(optimizer.make, {},
                {.world = world, .shards = false, .first = 6, .optimizer = half.optimizer, .module = half.module});
      expect_equal(by_shards, whole);
    }
    // The states are those of a training without shards.
    const Sharded reference = train(optimizer.make, {}, {.world = 4, .shards = false, .last = 6});
    torch::jit::Module a = copy_of(start());
    torch::jit::Module b = copy_of(start());
    const auto first = optimizer.make(parameters_of(a));
    const auto second = optimizer.make(parameters_of(b));
    std::istringstream of_shards(half.optimizer);
    std::istringstream of_whole(reference.optimizer);
    torch::load(*first, of_shards);
    torch::load(*second, of_whole);
    EXPECT_EQ(first->state().size(), parameters_of(a).size());
    for (int i = 0; i < 3; ++i) {
      for (const auto& [module, used] : {std::pair(&a, &first), std::pair(&b, &second)}) {
        (*used)->zero_grad();
        module->forward({at::ones({2, 8})}).toTensor().sum().backward();
        (*used)->step();
      }
    }
    for (size_t i = 0; i < parameters_of(a).size(); ++i) {
      EXPECT_TRUE(at::equal(parameters_of(a)[i], parameters_of(b)[i])) << i;
    }
  }
}

TEST(OptimizerShards, RefuseKeptGradientsAndUnknownOptimizers) {
  const auto messages = testing::run_ranks(2, [&](const DataParallel& ranks) {
    torch::jit::Module module = copy_of(start());
    const auto optimizer = testing::adam(parameters_of(module));
    TrainStep step(accelerate(module, Options().time_choices(false).compile(CompileMode::kBlocking)), mse, *optimizer,
                   TrainOptions().data_parallel(ranks).shard_optimizer(true).keep_gradients(true));
  });
  for (const std::string& message : messages) {
    EXPECT_THAT(message, ::testing::HasSubstr("a sharded step cannot keep gradients"));
  }
}

}  // namespace
}  // namespace sconce
