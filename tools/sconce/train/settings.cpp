#include "tools/sconce/train/settings.h"

#include "base/nearest_name.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/train/history.h"
#include "tools/sconce/train/loss.h"
#include "tools/sconce/train/metric.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>

namespace sconce::cli {
namespace {

constexpr double kLearningRateOfSgd = 0.01;  // LibTorch's options have no default

template <size_t count>
void expect_known(const char* option, const std::string& name, const std::array<const char*, count>& known) {
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    throw UserError(std::string(option) + ": there is no '" + name + "'" + did_you_mean(name, {known.begin(), known.end()}));
  }
}

void expect_valid_metrics(const TrainSettings& settings) {
  const std::vector<LossPart> losses = loss_parts(settings.loss);
  for (const std::string& text : settings.metric) {
    const MetricName metric = metric_name(text);
    if (!losses.empty() && metric.result >= losses.size()) {
      throw UserError("--metric " + text + ": there is no result " + std::to_string(metric.result) +
                      " of the model; there are " + std::to_string(losses.size()) +
                      " --loss, and results are counted from 0");
    }
    const std::string loss = losses.empty() ? "" : losses[metric.result].name;
    make_metric(text, loss == "bce_with_logits" ? TargetKind::kBinary : TargetKind::kClasses);
    const bool takes_values = metric.name == "mae" || metric.name == "rmse" || metric.name == "r2";
    if (!takes_values && (loss == "mse" || loss == "l1" || loss == "huber")) {
      throw UserError("--metric " + text + ": takes classes, and targets of " + loss +
                      " are values; mae, rmse and r2 take them");
    }
  }
  const std::vector<std::string>& metrics = settings.metric;
  if (settings.monitor != TrainHistory::kValidationLoss &&
      std::find(metrics.begin(), metrics.end(), settings.monitor) == metrics.end()) {
    throw UserError("--monitor " + settings.monitor + ": is neither validation_loss nor a --metric; add --metric " +
                    settings.monitor + " to measure it");
  }
}

// LBFGS compares the gradients and losses of several places, which must be those of one function.
void expect_valid_for_lbfgs(const TrainSettings& settings) {
  if (settings.clip_norm || settings.clip_value) {
    throw UserError(
        std::string(settings.clip_norm ? "--clip-norm" : "--clip-value") +
        ": lbfgs estimates the curvature of the loss from gradients, and clipped ones are not those of the loss; "
        "leave the option out, or use another --optimizer");
  }
  if (settings.accumulate > 1) {
    throw UserError(
        "--accumulate: lbfgs evaluates the loss of a step's examples several times, which must be one batch; "
        "leave the option out, and give a larger --batch");
  }
  if (settings.weight_decay) {
    throw UserError("--weight-decay: 'lbfgs' has none; the other optimizers have");
  }
}

template <typename Options>
constexpr bool kHasMomentum = requires(Options options) { options.momentum(0.5); };
template <typename Options>
constexpr bool kHasWeightDecay = requires(Options options) { options.weight_decay(0.5); };

template <typename Optimizer, typename Options>
std::unique_ptr<torch::optim::Optimizer> make(const TrainSettings& settings, std::vector<at::Tensor> parameters,
                                              Options options) {
  if (settings.lr) {
    options.lr(*settings.lr);
  }
  if constexpr (kHasWeightDecay<Options>) {
    if (settings.weight_decay) {
      options.weight_decay(*settings.weight_decay);
    }
  }
  if constexpr (kHasMomentum<Options>) {
    if (settings.momentum) {
      options.momentum(*settings.momentum);
    }
  }
  return std::make_unique<Optimizer>(std::move(parameters), options);
}

}  // namespace

Json to_json(const TrainSettings& settings) {
  Json json = Json::object();
  for_each_setting(settings, [&json](const char* name, const auto& value, Change /*change*/) {
    if constexpr (std::is_same_v<decltype(value), const std::optional<double>&>) {
      json[name] = value ? Json(*value) : Json();
    } else {
      json[name] = value;
    }
  });
  return json;
}

TrainSettings settings_of(const Json& json) {
  TrainSettings settings;
  for_each_setting(settings, [&json]<typename T>(const char* name, T& value, Change /*change*/) {
    const auto entry = json.find(name);
    if (entry == json.end()) {
      return;
    }
    if constexpr (std::is_same_v<T, std::optional<double>>) {
      value = entry->is_null() ? std::nullopt : std::optional(entry->template get<double>());
    } else {
      value = entry->template get<T>();
    }
  });
  return settings;
}

void expect_valid(const TrainSettings& settings) {
  loss_parts(settings.loss);
  if (!settings.loss.empty() && !settings.loss_module.empty()) {
    throw UserError("--loss-module: is the whole loss; leave out --loss");
  }
  expect_known("--optimizer", settings.optimizer, kOptimizerNames);
  expect_known("--schedule", settings.schedule, kScheduleNames);
  if (settings.momentum && settings.optimizer != "sgd" && settings.optimizer != "rmsprop") {
    throw UserError("--momentum: '" + settings.optimizer + "' has none; sgd and rmsprop have");
  }
  if (settings.optimizer == "lbfgs") {
    expect_valid_for_lbfgs(settings);
  }
  if (settings.schedule == "one_cycle" && settings.warmup > 0) {
    throw UserError("--warmup: one_cycle has a rise of its own; leave out --warmup");
  }
  expect_valid_metrics(settings);
  if (settings.min_lr && settings.schedule != "cosine" && settings.schedule != "linear" &&
      settings.schedule != "exponential") {
    throw UserError("--min-lr: '" + settings.schedule + "' has none; cosine, linear and exponential have");
  }
}

TrainSettings changed_settings(const TrainSettings& saved, const TrainSettings& given,
                               const std::function<bool(const std::string& option)>& is_given,
                               std::vector<std::string>& told) {
  Json settings = to_json(saved);
  const Json asked = to_json(given);
  for_each_setting(given, [&](const std::string& name, const auto& /*value*/, Change change) {
    if (!is_given(name) || asked[name] == settings[name]) {
      return;
    }
    if (change == Change::kRefused) {
      throw UserError("--" + name + ": is " + asked[name].dump() + ", and the checkpoint's training has " +
                      settings[name].dump() + "; leave the option out, or begin a training with another --output");
    }
    if (change == Change::kTold) {
      told.push_back("--" + name + " is " + asked[name].dump() + ", and was " + settings[name].dump());
    }
    settings[name] = asked[name];
  });
  TrainSettings changed = settings_of(settings);
  if (saved.validation_split > 0 && changed.seed != saved.seed) {
    throw UserError("--seed: also says which examples are for the validation, so it cannot change; leave the option out");
  }
  return changed;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainSettings& settings, std::vector<at::Tensor> parameters) {
  namespace optim = torch::optim;
  const std::string& name = settings.optimizer;
  return name == "sgd"       ? make<optim::SGD>(settings, std::move(parameters), optim::SGDOptions(kLearningRateOfSgd))
         : name == "adam"    ? make<optim::Adam>(settings, std::move(parameters), optim::AdamOptions())
         : name == "adamw"   ? make<optim::AdamW>(settings, std::move(parameters), optim::AdamWOptions())
         : name == "rmsprop" ? make<optim::RMSprop>(settings, std::move(parameters), optim::RMSpropOptions())
         : name == "lbfgs"   ? make<optim::LBFGS>(settings, std::move(parameters), optim::LBFGSOptions())
                             : make<optim::Adagrad>(settings, std::move(parameters), optim::AdagradOptions());
}

Schedule schedule_of(const TrainSettings& settings, double initial_lr) {
  constexpr double kLeastOfExponential = 0.01;
  const double least = settings.schedule == "exponential" ? kLeastOfExponential : 0;
  return {.kind = settings.schedule,
          .warmup = settings.warmup,
          .least = settings.min_lr && initial_lr > 0 ? *settings.min_lr / initial_lr : least};
}

}  // namespace sconce::cli
