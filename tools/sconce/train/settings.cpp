#include "tools/sconce/train/settings.h"

#include "base/nearest_name.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/compare.h"

#include <ATen/Functions.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sconce::cli {
namespace {

constexpr double kLearningRateOfSgd = 0.01;  // LibTorch's options have no default

template <size_t count>
void expect_known(const char* option, const std::string& name, const std::array<const char*, count>& known) {
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    throw UserError(std::string(option) + ": there is no '" + name + "'" + did_you_mean(name, {known.begin(), known.end()}));
  }
}

void expect_equal_sizes(const std::string& loss, const at::Tensor& output, const at::Tensor& target) {
  if (output.sizes() != target.sizes()) {
    throw UserError("--loss " + loss + ": the model returns " + describe_tensor_type(output) + " for targets " +
                    describe_tensor_type(target) + "; their sizes must be equal");
  }
}

at::Tensor loss_of(const std::string& name, const at::Tensor& output, const at::Tensor& target) {
  if (name == "cross_entropy" || name == "nll") {
    const at::Tensor classes =
        at::isIntegralType(target.scalar_type(), /*includeBool=*/false) ? target.to(at::kLong) : target;
    return name == "nll" ? at::nll_loss_nd(output, classes) : at::cross_entropy_loss(output, classes);
  }
  expect_equal_sizes(name, output, target);
  // Autocast may have made the output less precise than targets are.
  const at::Tensor values = target.to(output.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return name == "mse"     ? at::mse_loss(output, values)
         : name == "l1"    ? at::l1_loss(output, values)
         : name == "huber" ? at::huber_loss(output, values)
                           : at::binary_cross_entropy_with_logits(output, values);
}

template <typename Options>
constexpr bool kHasMomentum = requires(Options options) { options.momentum(0.5); };

template <typename Optimizer, typename Options>
std::unique_ptr<torch::optim::Optimizer> make(const TrainSettings& settings, std::vector<at::Tensor> parameters,
                                              Options options) {
  if (settings.lr) {
    options.lr(*settings.lr);
  }
  if (settings.weight_decay) {
    options.weight_decay(*settings.weight_decay);
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
  for_each_setting(settings, [&json](const char* name, const auto& value) {
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
  for_each_setting(settings, [&json]<typename T>(const char* name, T& value) {
    const Json& entry = json.at(name);
    if constexpr (std::is_same_v<T, std::optional<double>>) {
      value = entry.is_null() ? std::nullopt : std::optional(entry.template get<double>());
    } else {
      value = entry.template get<T>();
    }
  });
  return settings;
}

void expect_valid(const TrainSettings& settings) {
  expect_known("--loss", settings.loss, kLossNames);
  expect_known("--optimizer", settings.optimizer, kOptimizerNames);
  expect_known("--schedule", settings.schedule, kScheduleNames);
  if (settings.momentum && settings.optimizer != "sgd" && settings.optimizer != "rmsprop") {
    throw UserError("--momentum: '" + settings.optimizer + "' has none; sgd and rmsprop have");
  }
}

TrainStep::GeneralLoss loss_function(const std::string& name) {
  return [name](const c10::IValue& output, const std::vector<c10::IValue>& targets) {
    if (!output.isTensor()) {
      throw UserError("the model returns " + kind_of_value(output) +
                      "; train takes models that return one tensor, so wrap the model in one whose forward does");
    }
    return loss_of(name, output.toTensor(), targets.front().toTensor());
  };
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainSettings& settings, std::vector<at::Tensor> parameters) {
  namespace optim = torch::optim;
  const std::string& name = settings.optimizer;
  return name == "sgd"       ? make<optim::SGD>(settings, std::move(parameters), optim::SGDOptions(kLearningRateOfSgd))
         : name == "adam"    ? make<optim::Adam>(settings, std::move(parameters), optim::AdamOptions())
         : name == "adamw"   ? make<optim::AdamW>(settings, std::move(parameters), optim::AdamWOptions())
         : name == "rmsprop" ? make<optim::RMSprop>(settings, std::move(parameters), optim::RMSpropOptions())
                             : make<optim::Adagrad>(settings, std::move(parameters), optim::AdagradOptions());
}

double learning_rate(const std::string& schedule, double initial, size_t step, size_t steps) {
  if (schedule == "cosine") {
    return initial * (1 + std::cos(std::numbers::pi * static_cast<double>(step) / static_cast<double>(steps))) / 2;
  }
  return schedule == "step" ? initial * std::pow(0.1, 3 * step / steps) : initial;
}

}  // namespace sconce::cli
