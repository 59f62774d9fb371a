// Captured optimizers take the steps that torch::optim takes, with each of their options.
#include "tests/training/optimizer_pair.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/serialize.h>

#include <sstream>
#include <string>

namespace sconce::testing {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

void set_lr(Optimizer& optimizer, double lr) {
  for (OptimizerParamGroup& group : optimizer.param_groups()) {
    group.options().set_lr(lr);
  }
}

std::string saved(const Optimizer& optimizer) {
  std::ostringstream stream;
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  archive.save_to(stream);
  return stream.str();
}
void load(Optimizer& optimizer, const std::string& from) {
  std::istringstream stream(from);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  optimizer.load(archive);
}

class CapturedOptimizers : public ::testing::TestWithParam<std::tuple<OptimizerCase, bool>> {
 protected:
  static const OptimizerCase& tested() { return std::get<0>(GetParam()); }
  static Options options() { return Options().exact(std::get<1>(GetParam())); }
};
INSTANTIATE_TEST_SUITE_P(All, CapturedOptimizers,
                         ::testing::Combine(::testing::ValuesIn(all_optimizer_cases()), ::testing::Bool()),
                         [](const auto& made) {
                           return std::get<0>(made.param).name + (std::get<1>(made.param) ? "_exact" : "");
                         });

TEST_P(CapturedOptimizers, TakeTheStepsOfTorchOptim) {
  OptimizerPair pair(tested(), options());
  for (uint64_t step = 0; step < 300; ++step) {
    pair.step(step);
  }
  pair.expect_equal();
  pair.expect_all_captured();
  EXPECT_EQ(pair.captured().explain().captured_updates, 300 * pair.own().size());
}

TEST_P(CapturedOptimizers, FollowSchedulesSkippedGradientsAndNewGroups) {
  OptimizerPair pair(tested(), options());
  for (uint64_t step = 0; step < 60; ++step) {
    if (step == 20) {
      set_lr(pair.optimizer(), 0.003);
      set_lr(pair.eager(), 0.003);
    }
    // Adagrad makes states for the parameters of its constructor alone.
    if (step == 40 && dynamic_cast<torch::optim::Adagrad*>(&pair.optimizer()) == nullptr) {
      pair.own().push_back(parameter(at::ones({12})));
      pair.theirs().push_back(parameter(at::ones({12})));
      pair.optimizer().add_param_group(OptimizerParamGroup({pair.own().back()}));
      pair.eager().add_param_group(OptimizerParamGroup({pair.theirs().back()}));
      pair.optimizer().param_groups().back().options().set_lr(0.02);
      pair.eager().param_groups().back().options().set_lr(0.02);
    }
    pair.step(step, /*skip=*/3);
  }
  pair.expect_equal();
  pair.expect_all_captured();
  EXPECT_EQ(pair.captured().explain().plans.size(), 1U) << "a number is no part of a plan";
}

TEST_P(CapturedOptimizers, StatesGoToTorchOptimAndBack) {
  OptimizerPair pair(tested(), options());
  for (uint64_t step = 0; step < 5; ++step) {
    pair.step(step);
  }
  // A plain optimizer goes on with the captured one's state, and the captured one with the state of the plain one.
  const std::string own = saved(pair.optimizer());
  const std::string theirs = saved(pair.eager());
  load(pair.eager(), own);
  load(pair.optimizer(), theirs);
  for (uint64_t step = 5; step < 10; ++step) {
    pair.step(step);
  }
  pair.expect_equal();
  pair.expect_all_captured();
}

TEST_P(CapturedOptimizers, UpdateReplacedData) {
  OptimizerPair pair(tested(), options());
  for (uint64_t step = 0; step < 12; ++step) {
    if (step == 6) {
      for (size_t i = 0; i < pair.own().size(); ++i) {
        const at::Tensor data = at::randn_like(pair.own()[i].detach());
        pair.own()[i].set_data(data);
        pair.theirs()[i].set_data(data.clone());
      }
    }
    pair.step(step);
  }
  pair.expect_equal();
  pair.expect_all_captured();
}

// Plain steps in between, by a program that does not know of the captured optimizer.
TEST_P(CapturedOptimizers, MixWithStepsOfTorchOptim) {
  OptimizerPair pair(tested(), options());
  for (uint64_t step = 0; step < 10; ++step) {
    pair.step(step, /*skip=*/4);
    pair.optimizer().step();
    pair.eager().step();
  }
  pair.expect_equal();
}

// Kernels of long tensors run on several threads.
TEST_P(CapturedOptimizers, UpdateLongParameters) {
  OptimizerPair pair(tested(), options(),
                     {parameter(at::ones({70'000})), parameter(at::ones({8})), parameter(at::ones({300, 300}))});
  for (uint64_t step = 0; step < 3; ++step) {
    pair.step(step);
  }
  pair.expect_equal();
  pair.expect_all_captured();
}

}  // namespace
}  // namespace sconce::testing
