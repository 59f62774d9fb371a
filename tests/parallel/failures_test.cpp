// A rank that raises, ends or hangs: every other rank gets one error that names it, and no parameter is half updated.
#include "tests/parallel/optimizers.h"
#include "tests/support/ranks.h"
#include "tests/training/two_trainings.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <chrono>
#include <thread>

namespace sconce {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::mse;
using testing::parameters_of;
using testing::run_ranks;

// A training of a rank. `fail` is called before each step with the batch.
struct Trained {
  torch::jit::Module module = testing::two_layers(testing::kMlp);
  std::unique_ptr<torch::optim::Optimizer> optimizer = testing::adam(parameters_of(module));
  TrainStep step;

  explicit Trained(const DataParallel& ranks, const TrainOptions& options = {})
      : step(accelerate(module, Options()), mse, *optimizer, TrainOptions(options).data_parallel(ranks)) {}

  void train(int64_t features = 8) { step({at::ones({4, features})}, {at::ones({4, 8})}); }
  std::vector<at::Tensor> copies() const {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& parameter : parameters_of(module)) {
      copies.push_back(parameter.detach().clone());
    }
    return copies;
  }
};

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i], b[i])) << i;
  }
}

// The others wait in their batch norm, within forward.
TEST(RankFailures, ARankWithoutABatchIsMissedBySynchronizedNorms) {
  const torch::jit::Module start = testing::two_layers(
      R"(
def forward(self, x):
    h = torch.batch_norm(torch.linear(x, self.a_weight), self.a_bias, self.b_bias, self.mean, self.var, True, 0.1, 1e-5, True)
    return torch.linear(h, self.b_weight)
)",
      /*has_batch_norm=*/true);
  for (const bool joins : {false, true}) {
    const auto messages = run_ranks(2, [&](const DataParallel& ranks) {
      const torch::jit::Module module = testing::copy_of(start);
      const auto optimizer = testing::adam(parameters_of(module));
      TrainStep step(accelerate(module, Options()), mse, *optimizer,
                     TrainOptions().data_parallel(ranks).synchronize_batch_norm(true));
      for (int i = 0; i < 3; ++i) {
        step({at::ones({4, 8})}, {at::ones({4, 8})});
      }
      if (ranks.rank() == 0) {
        step({at::ones({4, 8})}, {at::ones({4, 8})});
      } else if (joins) {
        step.join();
      } else {
        step.skip();
      }
    });
    EXPECT_THAT(messages[1], HasSubstr("in their batch norms, which are synchronized"));
    EXPECT_THAT(messages[0], HasSubstr("cannot go on: rank 1 raised: TrainStep::skip"));
  }
}

TEST(RankFailures, NameTheRankThatRaisesAndItsReason) {
  for (const int steps : {0, 1, 4}) {  // before the first step, after the recorded one, between plans
    const auto messages = run_ranks(3, [&](const DataParallel& ranks) {
      Trained trained(ranks);
      for (int i = 0; i < steps; ++i) {
        trained.train();
      }
      const std::vector<at::Tensor> before = trained.copies();
      try {
        trained.train(ranks.rank() == 1 ? 7 : 8);  // seven features do not fit
        ADD_FAILURE() << "nothing is raised";
      } catch (const c10::Error&) {
        expect_equal(trained.copies(), before);
        for (const at::Tensor& parameter : parameters_of(trained.module)) {
          EXPECT_FALSE(parameter.grad().defined());
        }
        EXPECT_THROW(trained.train(), c10::Error);  // at once
        throw;
      }
    });
    EXPECT_THAT(messages[1], HasSubstr("mat1 and mat2 shapes cannot be multiplied")) << steps;
    for (const size_t rank : {0, 2}) {
      EXPECT_THAT(messages[rank], HasSubstr("rank " + std::to_string(rank) + " of 3 cannot go on: rank 1 raised: "));
      EXPECT_THAT(messages[rank], HasSubstr("mat1 and mat2 shapes cannot be multiplied"));
    }
  }
}

TEST(RankFailures, NameTheRankThatLeaves) {
  const auto messages = run_ranks(3, [&](const DataParallel& ranks) {
    Trained trained(ranks);
    for (int i = 0; i < (ranks.rank() == 2 ? 3 : 4); ++i) {
      trained.train();
    }
  });
  EXPECT_EQ(messages[2], "");
  for (const size_t rank : {0, 1}) {
    EXPECT_THAT(messages[rank], HasSubstr("cannot go on: rank 2 has left the group"));
  }
}

TEST(RankFailures, NameTheRankThatHangs) {
  std::atomic<int> waiting = 2;
  const auto messages = run_ranks(3,
                                  [&](const DataParallel& ranks) {
                                    Trained trained(ranks);
                                    trained.train();
                                    trained.train();
                                    if (ranks.rank() == 0) {
                                      while (waiting > 0) {
                                        std::this_thread::sleep_for(10ms);
                                      }
                                      return;
                                    }
                                    const std::vector<at::Tensor> before = trained.copies();
                                    try {
                                      trained.train();
                                    } catch (const c10::Error&) {
                                      --waiting;
                                      expect_equal(trained.copies(), before);
                                      throw;
                                    }
                                  },
                                  {.timeout = 1s});
  for (const size_t rank : {1, 2}) {
    EXPECT_THAT(messages[rank], HasSubstr("cannot go on: rank 0 does not answer: it was killed, hangs, or is cut off"));
  }
}

TEST(RankFailures, RefuseOtherParametersThanThoseOfRank0) {
  const auto messages = run_ranks(2, [&](const DataParallel& ranks) {
    torch::jit::Module module = testing::two_layers(testing::kMlp);
    if (ranks.rank() == 1) {
      parameters_of(module)[2].set_requires_grad(false);
    }
    const auto optimizer = testing::sgd(parameters_of(module));
    TrainStep step(accelerate(module, Options()), mse, *optimizer, TrainOptions().data_parallel(ranks));
    step({at::ones({4, 8})}, {at::ones({4, 8})});
  });
  EXPECT_THAT(messages[1], HasSubstr("rank 1 has other parameters and buffers than rank 0: "));
  EXPECT_THAT(messages[0], HasSubstr("rank 1 raised: data parallel: rank 1 has other parameters"));
}

TEST(RankFailures, RefuseGradientsOfNoParameters) {
  const auto messages = run_ranks(2, [&](const DataParallel& ranks) {
    if (ranks.rank() == 0) {
      ranks.average_gradients({});
    } else {
      ranks.sum(at::Tensor());
    }
  });
  EXPECT_THAT(messages[0], HasSubstr("average_gradients takes one or more tensors"));
  EXPECT_THAT(messages[1], HasSubstr("only contiguous tensors are summed"));
}

TEST(RankFailures, RefuseWhatIsNoRank) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_THROW(DataParallel(store, 2, 2), c10::Error);
  EXPECT_THROW(DataParallel(store, -1, 2), c10::Error);
}

}  // namespace
}  // namespace sconce
