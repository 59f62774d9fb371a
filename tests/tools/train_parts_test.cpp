// The parts of sconce train: order of examples, splits, schedules, metrics, curves.
#include "tools/sconce/report/errors.h"
#include "tools/sconce/train/batch_order.h"
#include "tools/sconce/train/curves.h"
#include "tools/sconce/train/data_source.h"
#include "tools/sconce/train/evaluation.h"
#include "tools/sconce/train/metric.h"
#include "tools/sconce/values/write_file.h"

#include "tests/tools/train_command.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sconce::tests {
namespace {

using cli::BatchOrder;
using cli::Placement;
using cli::Progress;
using cli::TargetKind;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> numbers_in(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.contiguous();
  return {plain.const_data_ptr<int64_t>(), plain.const_data_ptr<int64_t>() + plain.numel()};
}

// ---- Order ------------------------------------------------------------------------------------------------------------

cli::TrainSettings settings_with(size_t batch, size_t accumulate = 1, bool drop_last = false) {
  return {.epochs = 2, .batch = batch, .accumulate = accumulate, .drop_last = drop_last};
}

TEST(TrainOrder, ProcessesTakeWhatOneWithALargerBatchTakes) {
  for (const int64_t examples : {70, 64, 9}) {
    for (const bool drop_last : {false, true}) {
      for (const size_t accumulate : {1, 2}) {
        SCOPED_TRACE(std::to_string(examples) + " examples, accumulate " + std::to_string(accumulate));
        constexpr int64_t kWorld = 3;
        if (drop_last && examples < 12 * static_cast<int64_t>(accumulate)) {
          continue;
        }
        if (examples < 12 && accumulate == 2) {
          EXPECT_THROW(BatchOrder(examples, settings_with(4, accumulate), {.world = kWorld}), cli::UserError);
          continue;
        }
        BatchOrder one(examples, settings_with(4 * kWorld, accumulate, drop_last), {});
        std::vector<BatchOrder> ranks;
        for (int64_t rank = 0; rank < kWorld; ++rank) {
          ranks.emplace_back(examples, settings_with(4, accumulate, drop_last), Placement{rank, kWorld});
        }
        ASSERT_EQ(ranks[0].steps({}), one.steps({}));
        Progress now;
        Progress of_ranks;
        for (size_t step = 0; step < one.steps({}); ++step) {
          EXPECT_EQ(now.example, of_ranks.example);
          for (size_t call = 0; call < accumulate; ++call) {
            std::vector<int64_t> together;
            const std::vector<int64_t> sizes = ranks[0].sizes(of_ranks, call);
            for (size_t rank = 0; rank < ranks.size(); ++rank) {
              const std::vector<int64_t> batch = numbers_in(ranks[rank].batch(of_ranks, call));
              EXPECT_EQ(static_cast<int64_t>(batch.size()), sizes[rank]);
              together.insert(together.end(), batch.begin(), batch.end());
            }
            EXPECT_EQ(together, numbers_in(one.batch(now, call)));
          }
          now = one.after_step(now);
          of_ranks = ranks[0].after_step(of_ranks);
        }
        EXPECT_EQ(of_ranks.epoch, 2U);
      }
    }
  }
}

TEST(TrainOrder, EachEpochTakesEachExampleOnceInAnotherOrder) {
  BatchOrder order(10, settings_with(4), {});
  EXPECT_EQ(order.steps_per_epoch(), 3U);
  EXPECT_THAT(order.kinds(), ElementsAre(2, 4));
  std::vector<std::vector<int64_t>> epochs(2);
  for (Progress now; now.step < order.steps({}); now = order.after_step(now)) {
    const std::vector<int64_t> batch = numbers_in(order.batch(now, 0));
    epochs[now.epoch].insert(epochs[now.epoch].end(), batch.begin(), batch.end());
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (std::vector<int64_t>& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_THAT(epoch, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  }
}

TEST(TrainOrder, AnEpochGoesOnWithOtherBatches) {
  BatchOrder first(10, settings_with(4), {});
  std::vector<int64_t> taken = numbers_in(first.batch({}, 0));
  Progress now = first.after_step({});
  BatchOrder second(10, settings_with(2), {});
  EXPECT_EQ(second.steps_left_in_epoch(now), 3U);
  EXPECT_EQ(second.steps(now), 1U + 3 + 5);
  for (; now.epoch == 0; now = second.after_step(now)) {
    const std::vector<int64_t> batch = numbers_in(second.batch(now, 0));
    taken.insert(taken.end(), batch.begin(), batch.end());
  }
  std::sort(taken.begin(), taken.end());
  EXPECT_THAT(taken, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(TrainOrder, SplitsIntoPartsWithoutCommonExamples) {
  const ScratchFolder folder;
  const at::Tensor numbers = at::arange(50, at::kFloat);
  const auto data = cli::open_data({.data = {write_pair(folder, "data.pt", numbers, numbers)}}, "--data");
  const cli::SplitData parts = cli::split_data(data, 0.2, 3);
  EXPECT_EQ(parts.validation->examples(), 10);
  const at::Tensor training = parts.training->read(at::arange(40)).targets.front().toTensor();
  const at::Tensor validation = parts.validation->read(at::arange(10)).inputs.front().toTensor();
  EXPECT_TRUE(at::equal(std::get<0>(at::cat({training, validation}).sort()), numbers));
  EXPECT_FALSE(at::equal(validation, numbers.slice(0, 0, 10)));
  EXPECT_THROW(cli::split_data(data, 0.001, 0), cli::UserError);
}

// ---- Schedules: the numbers are those of torch.optim.lr_scheduler, PyTorch 2.11 ---------------------------------------

void expect_rates(const cli::Schedule& schedule, const std::vector<double>& expected) {
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_THAT(0.1 * schedule.share_of(step, expected.size()), DoubleNear(expected[step], 1e-9 * expected[step] + 1e-11))
        << schedule.kind << " " << step;
  }
}

TEST(TrainSchedule, IsThatOfPyTorch) {
  expect_rates({.kind = "cosine", .least = 0.1},  // CosineAnnealingLR(10, eta_min=0.01)
               {0.1, 0.09779754323, 0.09140576475, 0.08145033635, 0.06890576475, 0.055, 0.04109423525, 0.02854966365,
                0.01859423525, 0.01220245677});
  expect_rates({.kind = "linear", .least = 0.1},  // LinearLR(1.0, 0.1, 10)
               {0.1, 0.091, 0.082, 0.073, 0.064, 0.055, 0.046, 0.037, 0.028, 0.019});
  expect_rates({.kind = "exponential", .least = 0.01},  // ExponentialLR(0.01 ** (1 / 10))
               {0.1, 0.06309573445, 0.03981071706, 0.02511886432, 0.01584893192, 0.01, 0.006309573445, 0.003981071706,
                0.002511886432, 0.001584893192});
  expect_rates({.kind = "one_cycle"},  // OneCycleLR(0.1, total_steps=20)
               {0.004,         0.01316718427, 0.03716718427, 0.06683281573,  0.09083281573,  0.1,       0.09874640062,
                0.0950484632,  0.08909161776, 0.08117456539, 0.07169430018,  0.06112620219,  0.0500002, 0.03887419781,
                0.02830609982, 0.01882583461, 0.01090878224, 0.004951936799, 0.001253999376, 4e-07});
  expect_rates({.kind = "step"},  // StepLR(4, 0.1)
               {0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01, 0.001, 0.001, 0.001, 0.001});
  expect_rates({.kind = "cosine", .warmup = 4},  // LinearLR(0.25, 1.0, 3), then CosineAnnealingLR(8)
               {0.025, 0.05, 0.075, 0.1, 0.1, 0.09619397663, 0.08535533906, 0.06913417162, 0.05, 0.03086582838,
                0.01464466094, 0.003806023374});
  expect_rates({}, {0.1, 0.1});
}

// ---- Metrics: the numbers are those of scikit-learn 1.9 ---------------------------------------------------------------

// The value for all examples at once must be that of parts that two processes add up.
double value_of(const std::string& name, TargetKind kind, const at::Tensor& output, const at::Tensor& target) {
  const auto whole = cli::make_metric(name, kind);
  whole->add(output, target);
  const auto first = cli::make_metric(name, kind);
  const auto second = cli::make_metric(name, kind);
  first->add(output.slice(0, 0, 1), target.slice(0, 0, 1));
  second->add(output.slice(0, 1, 2), target.slice(0, 1, 2));
  second->add(output.slice(0, 2), target.slice(0, 2));
  const auto none = cli::make_metric(name, kind);
  first->merge(none->state());
  first->merge(second->state());
  EXPECT_NEAR(first->value(), whole->value(), 1e-12) << name;
  EXPECT_TRUE(std::isnan(none->value())) << name;
  return whole->value();
}

TEST(TrainMetric, JudgesClasses) {
  const at::Tensor scores =
      at::tensor({2.0, 1.0, 0.0, 0.0, 3.0, 1.0, 1.0, 0.0, 2.0, 0.5, 0.2, 0.1, 0.0, 2.0, 1.0, 1.0, 2.0, 3.0, 3.0, 0.0, 0.0})
          .reshape({7, 3});
  const at::Tensor classes = at::tensor({0, 1, 2, 1, 1, 0, 0}, at::kLong);
  EXPECT_NEAR(value_of("accuracy", TargetKind::kClasses, scores, classes), 5.0 / 7, 1e-12);
  EXPECT_NEAR(value_of("f1", TargetKind::kClasses, scores, classes), 0.7111111111111111, 1e-12);
  const at::Tensor with_fourth = at::cat({scores, at::full({7, 1}, -9.0)}, 1);
  EXPECT_NEAR(value_of("f1", TargetKind::kClasses, with_fourth, classes), 0.7111111111111111, 1e-12);
  // Probabilities as targets, classes of pixels, and the class that losses ignore.
  EXPECT_NEAR(value_of("accuracy", TargetKind::kClasses, scores, at::one_hot(classes, 3).to(at::kFloat)), 5.0 / 7, 1e-12);
  const at::Tensor images = at::stack({scores.slice(0, 0, 6), scores.slice(0, 0, 6).roll(1, 0)}, 2);
  EXPECT_NEAR(value_of("accuracy", TargetKind::kClasses, images, at::zeros({6, 2}, at::kLong)), 2.0 / 6, 1e-12);
  at::Tensor ignored = classes.clone();
  ignored[5] = -100;
  EXPECT_NEAR(value_of("accuracy", TargetKind::kClasses, scores, ignored), 5.0 / 6, 1e-12);

  const at::Tensor seven = at::tensor({47, 51, 75, 95, 3,  14, 82, 94, 24, 31, 86, 42, 27, 82, 25, 40, 64, 54, 8,  2, 86,
                                       75, 83, 53, 81, 32, 45, 78, 12, 30, 12, 45, 97, 13, 38, 40, 90, 20, 50, 26, 1, 75},
                                      at::kFloat)
                               .reshape({6, 7});
  EXPECT_NEAR(value_of("top5", TargetKind::kClasses, seven, at::arange(6)), 4.0 / 6, 1e-12);
}

TEST(TrainMetric, JudgesYesAndNo) {
  const at::Tensor logits = at::tensor({0.3, -1.0, 2.0, 0.3, -0.5, 0.1, -2.0, 0.3});
  const at::Tensor labels = at::tensor({1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0});
  EXPECT_NEAR(value_of("accuracy", TargetKind::kBinary, logits, labels), 0.625, 1e-12);
  EXPECT_NEAR(value_of("f1", TargetKind::kBinary, logits, labels), 2.0 / 3, 1e-12);
  EXPECT_NEAR(value_of("auc", TargetKind::kBinary, logits, labels), 0.8125, 1e-12);
  const at::Tensor two = at::tensor({0.1, 0.5, 1.0, 0.0, 0.0, 0.2, 0.3, 0.1, 0.0, 1.0}, at::kDouble).reshape({5, 2});
  EXPECT_NEAR(value_of("auc", TargetKind::kClasses, two, at::tensor({1, 0, 0, 1, 1}, at::kLong)), 5.0 / 6, 1e-12);
  const auto one_class = cli::make_metric("auc", TargetKind::kBinary);
  one_class->add(logits, at::ones({8}));
  EXPECT_TRUE(std::isnan(one_class->value()));
}

TEST(TrainMetric, JudgesValues) {
  const at::Tensor output = at::tensor({1.5, 2.0, 0.0, -1.0, 3.0, 4.0}).reshape({3, 2});
  const at::Tensor target = at::tensor({1.0, 2.5, 0.0, 0.0, 2.0, 5.0}).reshape({3, 2});
  EXPECT_NEAR(value_of("mae", TargetKind::kClasses, output, target), 2.0 / 3, 1e-12);
  EXPECT_NEAR(value_of("rmse", TargetKind::kClasses, output, target), 0.7637626158259734, 1e-12);
  EXPECT_NEAR(value_of("r2", TargetKind::kClasses, output, target), 0.8041958041958042, 1e-12);
  // Sums of squares would cancel.
  EXPECT_NEAR(value_of("r2", TargetKind::kClasses, output.to(at::kDouble) + 1e9, target.to(at::kDouble) + 1e9),
              0.8041958041958042, 1e-6);
}

TEST(TrainMetric, NamesWhatItCannotJudge) {
  const auto expect_error = [](const std::string& name, TargetKind kind, const at::Tensor& output, const at::Tensor& target,
                               const std::string& message) {
    try {
      cli::make_metric(name, kind)->add(output, target);
      ADD_FAILURE() << name << " takes it";
    } catch (const cli::UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  };
  expect_error("top5", TargetKind::kClasses, at::zeros({4, 5}), at::zeros({4}, at::kLong), "it takes more than 5");
  expect_error("auc", TargetKind::kClasses, at::zeros({4, 3}), at::zeros({4}, at::kLong), "it takes two");
  expect_error("mae", TargetKind::kClasses, at::zeros({4, 1}), at::zeros({4}), "their sizes must be equal");
  expect_error("accuracy", TargetKind::kClasses, at::zeros({4, 3}), at::zeros({4}), "scores [N, classes] and integers [N]");
  expect_error("acuracy", TargetKind::kClasses, {}, {}, "did you mean 'accuracy'?");
  expect_error("f1@first", TargetKind::kClasses, {}, {}, "--metric f1@first: 'first' is no number of a result");
  expect_error("f1@", TargetKind::kClasses, {}, {}, "--metric f1@: '' is no number of a result");
  expect_error("top5@1", TargetKind::kClasses, at::zeros({4, 5}), at::zeros({4}, at::kLong),
               "--metric top5@1: the model has 5");
}

TEST(TrainMetric, EvaluationsOfProcessesAddUp) {
  const at::Tensor output = at::randn({10, 3});
  const at::Tensor target = at::randint(0, 3, {10}, at::kLong);
  cli::Evaluation whole({"accuracy", "f1"}, {TargetKind::kClasses});
  cli::Evaluation first({"accuracy", "f1"}, {TargetKind::kClasses});
  cli::Evaluation second({"accuracy", "f1"}, {TargetKind::kClasses});
  whole.add(0.6 * 0.5 + 0.4 * 2, output, {target});
  first.add(0.5, output.slice(0, 0, 6), {target.slice(0, 0, 6)});
  second.add(2, output.slice(0, 6), {target.slice(0, 6)});
  first.merge(second.state());
  EXPECT_NEAR(first.loss(), whole.loss(), 1e-12);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(first.metrics()[i].second, whole.metrics()[i].second, 1e-12);
  }
}

// ---- History ------------------------------------------------------------------------------------------------------------

TEST(TrainHistory, ACurveKeepsMeansOfManyValues) {
  cli::ThinCurve curve;
  constexpr size_t kValues = 5000;
  for (size_t i = 0; i < kValues; ++i) {
    curve.add(static_cast<double>(i));
  }
  EXPECT_LE(curve.sums.size(), cli::ThinCurve::kMostPoints);
  EXPECT_GE(curve.sums.size(), cli::ThinCurve::kMostPoints / 2);
  EXPECT_EQ(std::accumulate(curve.sums.begin(), curve.sums.end(), 0.0), kValues * (kValues - 1) / 2.0);
  for (const cli::ThinCurve::Point& point : curve.points()) {
    EXPECT_NEAR(point.mean, point.at - 1, 1e-9);  // the value of step k is k - 1
  }
}

TEST(TrainHistory, KeepsWhatEpochsShow) {
  cli::TrainHistory history;
  for (const double loss : {4.0, 2.0}) {
    history.add_step(loss);
  }
  history.end_epoch();
  history.set("validation_loss", false, 5);
  for (const double accuracy : {0.5, 0.75, 0.25}) {
    history.add_step(1);
    history.end_epoch();
    history.set("accuracy", true, accuracy);
  }
  history.add_step(7);
  EXPECT_THAT(history.losses_of_epochs(), ElementsAre(3, 1, 1, 1, 7));
  EXPECT_EQ(cli::best_epoch(history.find("accuracy")).epoch, 2U);
  EXPECT_EQ(cli::best_epoch(history.find("validation_loss")).epoch, 0U);
  EXPECT_FALSE(cli::best_epoch(history.find("f1")).is_known());
  EXPECT_EQ(cli::epochs_csv(history),
            "epoch,step,loss,validation_loss,accuracy\n1,2,3,5,\n2,3,1,,0.5\n3,4,1,,0.75\n4,5,1,,0.25\n");
}

TEST(TrainFiles, TellThatTheDiskHasNoRoom) {
  const ScratchFolder folder;
  cli::expect_room(folder.path() + "/file", 1);
  try {
    cli::expect_room(folder.path() + "/file", uint64_t{1} << 60);
    ADD_FAILURE();
  } catch (const cli::UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/file: cannot be written: it takes 1073741824 GiB"));
  }
}

}  // namespace
}  // namespace sconce::tests
