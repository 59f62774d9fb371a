// The settings of a training: loss, optimizer, schedule, batches. A checkpoint keeps them.
#pragma once

#include "report/json.h"
#include "tools/sconce/train/schedule.h"

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

inline constexpr std::array kOptimizerNames = {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lbfgs"};

struct TrainSettings {
  std::string method = "forward";
  std::vector<std::string> loss;  // "mse" or "mse:0.5", of each result of the model (loss.h)
  std::string loss_module;
  std::string optimizer;
  size_t epochs = 0;
  size_t batch = 32;
  // Without a value, as the optimizer has it.
  std::optional<double> lr;
  std::optional<double> momentum;
  std::optional<double> weight_decay;
  std::string schedule = "constant";
  size_t warmup = 0;
  std::optional<double> min_lr;  // without a value, as the schedule has it
  std::optional<double> clip_norm;
  std::optional<double> clip_value;
  size_t accumulate = 1;
  uint64_t seed = 0;
  bool no_shuffle = false;
  bool drop_last = false;
  std::string autocast;
  bool sync_batch_norm = false;
  bool shard_optimizer = false;
  double validation_split = 0;
  std::vector<std::string> metric;
  std::string monitor = "validation_loss";
  size_t early_stopping = 0;  // epochs; 0: none
};

// What happens if a training goes on with another value of a setting.
enum class Change : uint8_t {
  kFree,     // it does
  kTold,     // it does, and the user is told, because the training is no longer the one that was begun
  kRefused,  // it does not
};

// Calls `visit` with the name of the option on the command line, without dashes, the field of each setting, and what a
// change of it means.
template <typename Settings, typename Visit>
void for_each_setting(Settings& settings, const Visit& visit) {
  visit("method", settings.method, Change::kRefused);
  visit("loss", settings.loss, Change::kRefused);
  visit("loss-module", settings.loss_module, Change::kTold);
  visit("optimizer", settings.optimizer, Change::kRefused);
  visit("epochs", settings.epochs, Change::kFree);
  visit("batch", settings.batch, Change::kTold);
  visit("lr", settings.lr, Change::kFree);
  visit("momentum", settings.momentum, Change::kFree);
  visit("weight-decay", settings.weight_decay, Change::kFree);
  visit("schedule", settings.schedule, Change::kFree);
  visit("warmup", settings.warmup, Change::kFree);
  visit("min-lr", settings.min_lr, Change::kFree);
  visit("clip-norm", settings.clip_norm, Change::kFree);
  visit("clip-value", settings.clip_value, Change::kFree);
  visit("accumulate", settings.accumulate, Change::kTold);
  visit("seed", settings.seed, Change::kTold);
  visit("no-shuffle", settings.no_shuffle, Change::kTold);
  visit("drop-last", settings.drop_last, Change::kTold);
  visit("autocast", settings.autocast, Change::kTold);
  visit("sync-batch-norm", settings.sync_batch_norm, Change::kTold);
  visit("shard-optimizer", settings.shard_optimizer, Change::kFree);
  visit("validation-split", settings.validation_split, Change::kRefused);
  visit("metric", settings.metric, Change::kFree);
  visit("monitor", settings.monitor, Change::kFree);
  visit("early-stopping", settings.early_stopping, Change::kFree);
}

// An object with an entry for each setting, null for those without a value.
Json to_json(const TrainSettings& settings);
// A setting that the object lacks has its default. Throws nlohmann::json::exception for values of other types.
TrainSettings settings_of(const Json& json);

// Throws UserError, with the nearest names, for a name that is not known, and for settings that do not go together.
void expect_valid(const TrainSettings& settings);

// Returns the settings of a training that goes on: those of the checkpoint, but for the options that were given. Appends a
// line to `told` for each changed setting that the user is to be told. Throws UserError for a change that is refused.
TrainSettings changed_settings(const TrainSettings& saved, const TrainSettings& given,
                               const std::function<bool(const std::string& option)>& is_given,
                               std::vector<std::string>& told);

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainSettings& settings, std::vector<at::Tensor> parameters);

// `initial_lr`: that of the first group of parameters.
Schedule schedule_of(const TrainSettings& settings, double initial_lr);

}  // namespace sconce::cli
