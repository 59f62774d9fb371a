// Many training steps: from eager's state the gradients of each step are eager's, and a run of its own stays as near to
// eager's as eager stays to itself when rounding differs.
//
// SCONCE_TRAINING_STEPS sets the number of steps; a large model takes at most 30.
#include "tests/support/environment_number.h"
#include "tests/training/trainee.h"
#include "tools/sconce/values/compare.h"

#include <sconce/graph_executor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <set>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

// Backward passes add up in another order.
constexpr cli::CompareOptions kGradients{.rtol = 1e-3, .atol = 1e-5, .requires_grad = false};
// How many times farther from eager than the perturbed run a loss may be, and the distance that is always allowed.
constexpr double kBand = 10;
constexpr double kRounding = 1e-5;  // relative

struct TrainedModel {
  const char* name;
  uint64_t max_steps;
};
void PrintTo(const TrainedModel& model, std::ostream* out) { *out << model.name; }

class TrainingSteps : public ::testing::TestWithParam<std::tuple<TrainedModel, cli::Optimizer>> {
 protected:
  static const TrainedModel& model() { return std::get<0>(GetParam()); }
  static Trainee trainee(Trainee::Executor executor) { return {model().name, executor, std::get<1>(GetParam())}; }
  static uint64_t steps() { return std::min(model().max_steps, environment_number("SCONCE_TRAINING_STEPS", 20)); }
};

// Returns the runs of plans with differentiable subgraphs, and those of calls that were recorded with their backward.
uint64_t differentiated_runs(const Module& module) {
  const Explanation explanation = module.method("forward").explain();
  uint64_t runs = explanation.recorded.by_plan;
  for (const PlanExplanation& plan : explanation.plans) {
    runs += plan.gradients && !plan.gradients->subgraphs.empty() ? plan.runs : 0;
  }
  return runs;
}

// Rounding decides on which side of zero a relu's operand near zero lies, and which of two pixels a pool takes. So it may
// move a gradient in a few steps, as far as it moves eager's own.
TEST_P(TrainingSteps, GradientsFromEagersStateAreEagers) {
  Trainee eager = trainee(Trainee::Executor::kEager);
  Trainee perturbed = trainee(Trainee::Executor::kEager);
  Trainee ours = trainee(Trainee::Executor::kSconce);
  perturbed.perturb_arguments();
  const auto distance = [](const at::Tensor& gradient, const at::Tensor& expected) {  // in parts of the largest element
    return ((gradient - expected).abs().max() / expected.abs().max()).item<double>();
  };
  double first = 0;
  double farthest = 0;  // of eager from itself
  double moved = 0;
  std::set<uint64_t> moved_steps;
  std::string mismatches;
  for (uint64_t step = 0; step < steps(); ++step) {
    ours.copy_state(eager);
    perturbed.copy_state(eager);
    perturbed.backward(step);
    const double loss = ours.backward(step);
    const double expected = eager.train(step);
    first = step == 0 ? expected : first;
    ASSERT_NEAR(loss, expected, 1e-4 * expected + 1e-9 * first) << "step " << step;  // a loss near 0 is a difference
    const std::vector<at::Tensor> got = ours.gradients();
    const std::vector<at::Tensor> wanted = eager.gradients();
    const std::vector<at::Tensor> near = perturbed.gradients();
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(got[i].defined(), wanted[i].defined()) << "step " << step << ", parameter " << i;
      if (wanted[i].defined() && distance(near[i], wanted[i]) > farthest) {
        farthest = distance(near[i], wanted[i]);
      }
      for (const cli::Mismatch& mismatch : cli::compare(got[i], wanted[i], kGradients, "gradient")) {
        moved = std::max(moved, distance(got[i], wanted[i]));
        moved_steps.insert(step);
        mismatches +=
            "step " + std::to_string(step) + ", parameter " + std::to_string(i) + ": " + cli::to_string(mismatch) + "\n";
      }
    }
  }
  EXPECT_LE(moved, kBand * farthest) << mismatches;
  EXPECT_LE(moved_steps.size(), steps() / 4) << mismatches;
  EXPECT_EQ(differentiated_runs(*ours.sconce()), steps());
}

TEST_P(TrainingSteps, TheLossStaysWithinTheBandOfRounding) {
  Trainee eager = trainee(Trainee::Executor::kEager);
  Trainee perturbed = trainee(Trainee::Executor::kEager);
  Trainee ours = trainee(Trainee::Executor::kSconce);
  perturbed.perturb_arguments();
  std::vector<double> losses;
  std::vector<double> distances;
  double band = 0;  // the largest distance between the eager runs
  for (uint64_t step = 0; step < steps(); ++step) {
    perturbed.perturb_parameters();  // as if each operator of each step rounded otherwise
    losses.push_back(eager.train(step));
    distances.push_back(std::abs(ours.train(step) - losses.back()));
    band = std::max(band, std::abs(perturbed.train(step) - losses.back()));
  }
  // A pixel that a relu or a pool takes otherwise moves all losses that follow, in eager's run at another step than in ours.
  for (size_t step = 0; step < losses.size(); ++step) {
    EXPECT_LE(distances[step], kBand * band + kRounding * std::abs(losses[step])) << "step " << step;
  }
  EXPECT_LT(losses.back(), losses.front()) << "the model does not learn";
  std::cout << model().name << ", " << steps() << " steps: loss " << losses.front() << " to " << losses.back()
            << "; farthest from eager: sconce " << *std::ranges::max_element(distances) << ", eager with other rounding "
            << band << "\n";
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingSteps,
                         ::testing::Combine(::testing::Values(TrainedModel{"mlp", 200}, TrainedModel{"lstm_loop", 200},
                                                              TrainedModel{"transformer_encoder_train", 200},
                                                              TrainedModel{"resnet18_train", 30}),
                                            ::testing::Values(cli::Optimizer::kSgd, cli::Optimizer::kAdam)),
                         [](const auto& made) {
                           return std::string(std::get<0>(made.param).name) +
                                  (std::get<1>(made.param) == cli::Optimizer::kSgd ? "_sgd" : "_adam");
                         });

}  // namespace
}  // namespace sconce::testing
