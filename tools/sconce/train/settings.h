// The settings of a training: loss, optimizer, schedule, batches. A checkpoint keeps them.
#pragma once

#include "report/json.h"

#include <sconce/train_step.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

inline constexpr std::array kLossNames = {"mse", "cross_entropy", "bce_with_logits", "l1", "nll", "huber"};
inline constexpr std::array kOptimizerNames = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};
inline constexpr std::array kScheduleNames = {"constant", "cosine", "step"};

struct TrainSettings {
  std::string loss;
  std::string optimizer;
  size_t epochs = 0;
  size_t batch = 32;
  // Without a value, as the optimizer has it.
  std::optional<double> lr;
  std::optional<double> momentum;
  std::optional<double> weight_decay;
  std::string schedule = "constant";
  std::optional<double> clip_norm;
  std::optional<double> clip_value;
  size_t accumulate = 1;
  uint64_t seed = 0;
  bool no_shuffle = false;
  bool drop_last = false;
  std::string autocast;
};

// Calls `visit` with the name of the option on the command line, without dashes, and the field of each setting.
template <typename Settings, typename Visit>
void for_each_setting(Settings& settings, const Visit& visit) {
  visit("loss", settings.loss);
  visit("optimizer", settings.optimizer);
  visit("epochs", settings.epochs);
  visit("batch", settings.batch);
  visit("lr", settings.lr);
  visit("momentum", settings.momentum);
  visit("weight-decay", settings.weight_decay);
  visit("schedule", settings.schedule);
  visit("clip-norm", settings.clip_norm);
  visit("clip-value", settings.clip_value);
  visit("accumulate", settings.accumulate);
  visit("seed", settings.seed);
  visit("no-shuffle", settings.no_shuffle);
  visit("drop-last", settings.drop_last);
  visit("autocast", settings.autocast);
}

// An object with an entry for each setting, null for those without a value.
Json to_json(const TrainSettings& settings);
// Throws nlohmann::json::exception for an object that `to_json` does not return.
TrainSettings settings_of(const Json& json);

// Throws UserError, with the nearest names, for a name that is not known, and for a momentum of an optimizer without one.
void expect_valid(const TrainSettings& settings);

// Returns the loss function of that name. It throws UserError if the module returns no tensor, or one whose sizes do not fit
// the targets. Targets are converted to the dtype that the loss takes.
TrainStep::GeneralLoss loss_function(const std::string& name);

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainSettings& settings, std::vector<at::Tensor> parameters);

// Returns the learning rate of step `step` of `steps`, counted from 0, where `initial` is that of step 0.
double learning_rate(const std::string& schedule, double initial, size_t step, size_t steps);

}  // namespace sconce::cli
