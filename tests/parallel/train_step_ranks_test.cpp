// Ranks that train together have the parameters of one process with the whole batch, whatever program serves each of them.
#include "tests/parallel/optimizers.h"
#include "tests/support/ranks.h"
#include "tests/training/two_trainings.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include <mutex>
#include <random>

namespace sconce {
namespace {

using testing::copy_of;
using testing::mse;
using testing::parameters_of;
using testing::run_all_ranks;

// Parameters of enough elements for kernels to update them.
torch::jit::Module wide_layers() {
  torch::jit::Module module("wide");
  at::manual_seed(5);
  module.register_parameter("a", at::randn({130, 8}) * 0.3, false);
  module.register_parameter("b", at::randn({130, 130}) * 0.1, false);
  module.register_parameter("c", at::zeros({130}), false);
  module.register_parameter("d", at::randn({8, 130}) * 0.1, false);
  module.define(R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a))
    for i in range(2):
        h = torch.tanh(torch.linear(h, self.b, self.c)) + h
    return torch.linear(h, self.d)
)");
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.set_requires_grad(true);
  }
  return module;
}

struct Batch {
  at::Tensor x;
  at::Tensor target;
};
Batch batch_of(uint64_t step, int64_t size) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(step + 1);
  return {at::randn({size, 8}, generator), at::rand({size, 8}, generator)};
}
Batch part_of(const Batch& whole, int part, int parts) {
  const auto cut = [&](const at::Tensor& tensor) { return tensor.chunk(parts)[static_cast<size_t>(part)].clone(); };
  return {cut(whole.x), cut(whole.target)};
}

// The parameters of the ranks after each step: equal to the bit.
class EqualRanks {
 public:
  explicit EqualRanks(int world) : of_ranks_(static_cast<size_t>(world)) {}

  void add(int rank, const torch::jit::Module& module) {
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : parameters_of(module)) {
      all.push_back(parameter.detach().reshape({-1}).clone());
    }
    of_ranks_[static_cast<size_t>(rank)].push_back(at::cat(all));
  }
  void expect_equal() const {
    for (size_t rank = 1; rank < of_ranks_.size(); ++rank) {
      ASSERT_EQ(of_ranks_[rank].size(), of_ranks_[0].size());
      for (size_t step = 0; step < of_ranks_[0].size(); ++step) {
        ASSERT_TRUE(at::equal(of_ranks_[rank][step], of_ranks_[0][step])) << "rank " << rank << ", step " << step;
      }
    }
  }
  const at::Tensor& last() const { return of_ranks_[0].back(); }

 private:
  std::vector<std::vector<at::Tensor>> of_ranks_;
};

// Trains a copy of the module in one process by LibTorch's own loop. Returns its parameters.
at::Tensor trained_alone(const torch::jit::Module& start, const testing::MakeOptimizer& make, const TrainOptions& options,
                         int steps, int64_t size) {
  torch::jit::Module module = copy_of(start);
  const auto optimizer = make(parameters_of(module));
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    const Batch batch = batch_of(static_cast<uint64_t>(step), size);
    mse(module.forward({batch.x}).toTensor(), batch.target).backward();
    if (options.clip_norm()) {
      torch::nn::utils::clip_grad_norm_(parameters_of(module), *options.clip_norm());
    }
    if (options.clip_value()) {
      torch::nn::utils::clip_grad_value_(parameters_of(module), *options.clip_value());
    }
    optimizer->step();
  }
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : parameters_of(module)) {
    all.push_back(parameter.detach().reshape({-1}));
  }
  return at::cat(all);
}

std::string describe(const testing::NamedOptimizer& optimizer, int world, const TrainOptions& options) {
  return std::string(optimizer.name) + ", " + std::to_string(world) + " ranks, norm " +
         std::to_string(options.clip_norm().value_or(0)) + ", value " + std::to_string(options.clip_value().value_or(0)) +
         ", " + std::to_string(options.accumulate()) + " calls";
}

// How the calls of a rank are made.
enum class Calls { kAlike, kByChance };

// Trains on some ranks. `kByChance`: each rank by itself gives arguments that have a history, which no plan serves, or that
// are views, which other plans serve.
void train_on_ranks(int world, const torch::jit::Module& start, const testing::MakeOptimizer& make,
                    const TrainOptions& options, Calls calls, EqualRanks& equal, uint64_t* updated_by_plan = nullptr) {
  constexpr int kSteps = 20;
  const auto accumulate = static_cast<int>(options.accumulate());
  run_all_ranks(world,
                [&](const DataParallel& ranks) {
                  torch::jit::Module module = copy_of(start);
                  if (ranks.rank() > 0) {  // the step begins with those of rank 0
                    const at::NoGradGuard no_grad;
                    for (const at::Tensor& parameter : parameters_of(module)) {
                      parameter.add_(1);
                    }
                  }
                  const auto optimizer = make(parameters_of(module));
                  TrainStep step(accelerate(module, Options()), mse, *optimizer, TrainOptions(options).data_parallel(ranks));
                  std::mt19937 chance(static_cast<unsigned>(ranks.rank()));
                  for (int i = 0; i < kSteps; ++i) {
                    const Batch whole = batch_of(static_cast<uint64_t>(i), 48);
                    for (int call = 0; call < accumulate; ++call) {
                      Batch part = part_of(whole, call * world + ranks.rank(), accumulate * world);
                      if (calls == Calls::kByChance && chance() % 3 == 0) {
                        part.x = part.x.clone().requires_grad_() * 1;
                      } else if (calls == Calls::kByChance && chance() % 3 == 0) {
                        part.x = part.x.t().contiguous().t();
                      }
                      step({part.x}, {part.target});
                    }
                    equal.add(ranks.rank(), module);
                  }
                  if (updated_by_plan != nullptr && ranks.rank() == 0) {
                    *updated_by_plan = step.explain().updated_by_plan;
                  }
                },
                // Several buckets for these few parameters.
                {.timeout = std::chrono::seconds(60), .bucket_bytes = 300, .first_bucket_bytes = 100});
}

TEST(TrainStepRanks, EqualOneProcessWithTheWholeBatch) {
  const torch::jit::Module start = testing::two_layers(testing::kMlp);
  for (const int world : {2, 4}) {
    for (const testing::NamedOptimizer& optimizer : testing::optimizers()) {
      for (const TrainOptions& options :
           {TrainOptions(), TrainOptions().clip_norm(0.05), TrainOptions().clip_value(0.001), TrainOptions().accumulate(3),
            TrainOptions().accumulate(2).clip_norm(0.1), TrainOptions().keep_gradients(true)}) {
        SCOPED_TRACE(describe(optimizer, world, options));
        EqualRanks equal(world);
        uint64_t updated_by_plan = 0;
        train_on_ranks(world, start, optimizer.make, options, Calls::kAlike, equal, &updated_by_plan);
        equal.expect_equal();
        const at::Tensor alone = trained_alone(start, optimizer.make, options, 20, 48);
        EXPECT_TRUE(at::allclose(equal.last(), alone, 1e-4, 1e-5)) << (equal.last() - alone).abs().max();
        if (options.accumulate() == 1 && !options.keep_gradients()) {
          EXPECT_EQ(updated_by_plan, 19);
        }
      }
    }
  }
}

TEST(TrainStepRanks, AreEqualWhenEachIsServedByAnotherProgram) {
  const torch::jit::Module start = wide_layers();
  for (const int world : {2, 3}) {
    for (const testing::NamedOptimizer& optimizer : testing::optimizers()) {
      for (const TrainOptions& options : {TrainOptions(), TrainOptions().clip_norm(0.05), TrainOptions().clip_value(0.001),
                                          TrainOptions().accumulate(2).clip_norm(0.1)}) {
        SCOPED_TRACE(describe(optimizer, world, options));
        EqualRanks equal(world);
        train_on_ranks(world, start, optimizer.make, options, Calls::kByChance, equal);
        equal.expect_equal();
        const at::Tensor alone = trained_alone(start, optimizer.make, options, 20, 48);
        EXPECT_TRUE(at::allclose(equal.last(), alone, 1e-4, 1e-5)) << (equal.last() - alone).abs().max();
      }
    }
  }
}

// Each row of a batch chooses by its sign which weight it meets, so that a rank, or all of them, may leave one unused.
TEST(TrainStepRanks, UpdateWhatAnyRankUses) {
  const torch::jit::Module start = testing::two_layers(R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias))
    if bool(x[0, 0] > 0):
        h = torch.linear(h, self.b_weight)
    if bool(x[0, 0] > 1):
        h = h + self.b_bias
    return h
)");
  const auto adam = [](std::vector<at::Tensor> parameters) {
    return std::make_shared<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(0.01).weight_decay(0.1));
  };
  constexpr int kSteps = 24;
  const auto x_of = [](int step, int rank) {
    at::Tensor x = batch_of(static_cast<uint64_t>(step), 8).x.chunk(2)[static_cast<size_t>(rank)].clone();
    // None, the first, the second, both; the last weight in each eighth step.
    x[0][0] = ((step >> rank) & 1) == 0 ? -1 : (step % 8 == 7 ? 2.0 : 0.5);
    return x;
  };
  EqualRanks equal(2);
  run_all_ranks(2, [&](const DataParallel& ranks) {
    torch::jit::Module module = copy_of(start);
    const auto optimizer = adam(parameters_of(module));
    TrainStep step(accelerate(module, Options()), mse, *optimizer, TrainOptions().data_parallel(ranks));
    for (int i = 0; i < kSteps; ++i) {
      step({x_of(i, ranks.rank())}, {at::ones({4, 8})});
      equal.add(ranks.rank(), module);
    }
  });
  equal.expect_equal();
  torch::jit::Module module = copy_of(start);
  const auto optimizer = adam(parameters_of(module));
  for (int i = 0; i < kSteps; ++i) {
    optimizer->zero_grad();
    for (const int rank : {0, 1}) {
      (mse(module.forward({x_of(i, rank)}).toTensor(), at::ones({4, 8})) / 2).backward();
    }
    optimizer->step();
  }
  EqualRanks alone(1);
  alone.add(0, module);
  EXPECT_TRUE(at::allclose(equal.last(), alone.last(), 1e-4, 1e-5)) << (equal.last() - alone.last()).abs().max();
}

// The mean over all examples, where ranks have batches of other sizes, and one has none.
TEST(TrainStepRanks, WeighBatchesByTheirShares) {
  const torch::jit::Module start = testing::two_layers(testing::kMlp);
  EqualRanks equal(2);
  run_all_ranks(2, [&](const DataParallel& ranks) {
    torch::jit::Module module = copy_of(start);
    const auto optimizer = testing::adam(parameters_of(module));
    TrainStep step(accelerate(module, Options()), mse, *optimizer, TrainOptions().data_parallel(ranks));
    for (int i = 0; i < 12; ++i) {
      const Batch whole = batch_of(static_cast<uint64_t>(i), 8);
      const int64_t first = i % 4 + 1;  // rank 0's examples
      const auto cut = [&](const at::Tensor& tensor) {
        return ranks.rank() == 0 ? tensor.narrow(0, 0, first) : tensor.narrow(0, first, 8 - first);
      };
      const at::Tensor x = cut(whole.x);
      step({x}, {cut(whole.target)}, static_cast<double>(x.size(0)) / 8);
      equal.add(ranks.rank(), module);
    }
  });
  equal.expect_equal();
  const at::Tensor alone = trained_alone(start, testing::adam, {}, 12, 8);
  EXPECT_TRUE(at::allclose(equal.last(), alone, 1e-4, 1e-5)) << (equal.last() - alone).abs().max();
}

TEST(TrainStepRanks, GoOnUntilNoRankHasABatch) {
  const torch::jit::Module start = testing::two_layers(testing::kMlp);
  EqualRanks equal(3);
  std::vector<size_t> joined(3);
  run_all_ranks(3, [&](const DataParallel& ranks) {
    torch::jit::Module module = copy_of(start);
    const auto optimizer = testing::adam(parameters_of(module));
    TrainStep step(accelerate(module, Options()), mse, *optimizer, TrainOptions().clip_norm(0.1).data_parallel(ranks));
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int i = 0; i < 3 + 2 * ranks.rank(); ++i) {
        step({batch_of(static_cast<uint64_t>(i), 4).x}, {at::ones({4, 8})});
      }
      joined[static_cast<size_t>(ranks.rank())] = step.join();
      equal.add(ranks.rank(), module);
    }
  });
  equal.expect_equal();
  EXPECT_EQ(joined, (std::vector<size_t>{4, 2, 0}));
}

TEST(TrainStepRanks, SynchronizeBatchNorms) {
  const torch::jit::Module start = testing::two_layers(
      R"(
def forward(self, x):
    h = torch.batch_norm(torch.linear(x, self.a_weight), self.b_bias + 1, self.a_bias, self.mean, self.var, True, 0.1, 1e-5, True)
    k = torch.batch_norm(torch.linear(x, self.b_weight), None, None, None, None, True, 0.1, 1e-5, True)
    return torch.linear(torch.relu(h), self.b_weight) + k
)",
      /*has_batch_norm=*/true);
  // Between 2 processes, the running statistics are those of the whole batch, and by chance an engine's backward meets a
  // plan's.
  for (const Calls calls : {Calls::kAlike, Calls::kByChance}) {
    EqualRanks equal(2);
    std::vector<at::Tensor> means(2);
    uint64_t by_plan = 0;
    run_all_ranks(2,
                  [&](const DataParallel& ranks) {
                    torch::jit::Module module = copy_of(start);
                    const auto optimizer = testing::adam(parameters_of(module));
                    TrainStep step(accelerate(module, Options()), mse, *optimizer,
                                   TrainOptions().data_parallel(ranks).synchronize_batch_norm(true));
                    std::mt19937 chance(static_cast<unsigned>(ranks.rank()));
                    for (int i = 0; i < 20; ++i) {
                      Batch part = part_of(batch_of(static_cast<uint64_t>(i), 12), ranks.rank(), 2);
                      if (calls == Calls::kByChance && chance() % 3 == 0) {
                        part.x = part.x.clone().requires_grad_() * 1;
                      }
                      step({part.x}, {part.target});
                      equal.add(ranks.rank(), module);
                    }
                    means[static_cast<size_t>(ranks.rank())] = module.attr("mean").toTensor().clone();
                    by_plan = step.explain().updated_by_plan;
                  },
                  {.timeout = std::chrono::seconds(60), .bucket_bytes = 300, .first_bucket_bytes = 100});
    equal.expect_equal();
    EXPECT_TRUE(at::equal(means[0], means[1]));
    if (calls == Calls::kAlike) {
      EXPECT_EQ(by_plan, 19);
    }
    torch::jit::Module module = copy_of(start);
    const auto optimizer = testing::adam(parameters_of(module));
    for (int i = 0; i < 20; ++i) {
      optimizer->zero_grad();
      const Batch whole = batch_of(static_cast<uint64_t>(i), 12);
      mse(module.forward({whole.x}).toTensor(), whole.target).backward();
      optimizer->step();
    }
    EqualRanks alone(1);
    alone.add(0, module);
    EXPECT_TRUE(at::allclose(equal.last(), alone.last(), 1e-3, 1e-4)) << (equal.last() - alone.last()).abs().max();
    EXPECT_TRUE(at::allclose(means[0], module.attr("mean").toTensor(), 1e-4, 1e-5));
  }
}

TEST(TrainStepRanks, AverageGradientsOfAnyBackward) {
  const torch::jit::Module start = testing::two_layers(testing::kMlp);
  std::vector<std::vector<at::Tensor>> gradients(2);
  run_all_ranks(2, [&](const DataParallel& ranks) {
    torch::jit::Module module = copy_of(start);
    for (int i = 0; i < 3; ++i) {
      for (const at::Tensor& parameter : parameters_of(module)) {
        parameter.mutable_grad() = at::Tensor();
      }
      const Batch part = part_of(batch_of(static_cast<uint64_t>(i), 8), ranks.rank(), 2);
      mse(module.forward({part.x}).toTensor(), part.target).backward();
      ranks.average_gradients(parameters_of(module));
    }
    for (const at::Tensor& parameter : parameters_of(module)) {
      gradients[static_cast<size_t>(ranks.rank())].push_back(parameter.grad().clone());
    }
  });
  torch::jit::Module module = copy_of(start);
  const Batch whole = batch_of(2, 8);
  mse(module.forward({whole.x}).toTensor(), whole.target).backward();
  const std::vector<at::Tensor> parameters = parameters_of(module);
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i]));
    EXPECT_TRUE(at::allclose(gradients[0][i], parameters[i].grad(), 1e-5, 1e-6)) << i;
  }
}

}  // namespace
}  // namespace sconce
