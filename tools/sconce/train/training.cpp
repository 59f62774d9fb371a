#include "tools/sconce/train/training.h"

#include "tools/sconce/check/gradients.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/fit_arguments.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace sconce::cli {
namespace {

// Returns the parameters that require a gradient, tied ones once.
std::vector<at::Tensor> distinct_parameters(const torch::jit::Module& module) {
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& named : trained_parameters(module)) {
    const bool is_new = std::none_of(parameters.begin(), parameters.end(),
                                     [&](const at::Tensor& parameter) { return parameter.is_same(named.tensor); });
    if (is_new) {
      parameters.push_back(named.tensor);
    }
  }
  if (parameters.empty()) {
    throw UserError("no parameter of the model requires a gradient; save the model with parameters that do");
  }
  return parameters;
}

TrainOptions options_of(const TrainSettings& settings) {
  TrainOptions options;
  options.accumulate(settings.accumulate);
  if (settings.clip_norm) {
    options.clip_norm(*settings.clip_norm);
  }
  if (settings.clip_value) {
    options.clip_value(*settings.clip_value);
  }
  if (const auto dtype = autocast_of_calls()) {
    options.autocast(*dtype);
  }
  return options;
}

int64_t count_batches(int64_t examples, const TrainSettings& settings) {
  const auto size = static_cast<int64_t>(settings.batch);
  return settings.drop_last ? examples / size : (examples + size - 1) / size;
}

size_t count_steps(int64_t examples, const TrainSettings& settings) {
  const int64_t batches = count_batches(examples, settings);
  const size_t steps = static_cast<size_t>(batches) / settings.accumulate;
  if (steps == 0) {
    throw UserError("an epoch of " + std::to_string(examples) + " examples has " + std::to_string(batches) + " batches of " +
                    std::to_string(settings.batch) + ", too few for one step of " + std::to_string(settings.accumulate) +
                    "; lower --batch or --accumulate");
  }
  return steps;
}

}  // namespace

Training::Training(Module module, TrainData data, TrainSettings settings)
    : module_(std::move(module)),
      script_(module_.script_module()),
      data_(std::move(data)),
      settings_(std::move(settings)),
      steps_per_epoch_(count_steps(data_.examples(), settings_)),
      optimizer_(make_optimizer(settings_, distinct_parameters(script_))),
      initial_lr_(optimizer_->param_groups().front().options().get_lr()),
      step_(module_, loss_function(settings_.loss), *optimizer_, options_of(settings_)) {
  module_.train();
  at::manual_seed(settings_.seed);
}

void Training::rehearse(const std::optional<TrainData>& validation) {
  const TrainState before = state_of(script_, *optimizer_);
  const int64_t whole = std::min(data_.examples(), static_cast<int64_t>(settings_.batch));
  const int64_t last = data_.examples() - (count_batches(data_.examples(), settings_) - 1) * whole;
  for (const int64_t size : std::set{whole, std::min(whole, last)}) {
    const TrainBatch batch = batch_of(data_, at::arange(size));
    fit_arguments(script_, "forward", batch.inputs);
    // A plan may run only from the third call of a kind on.
    for (size_t call = 0; call < 3 * settings_.accumulate; ++call) {
      step_(batch.inputs, batch.targets);
    }
  }
  if (validation) {
    mean_loss(*validation, std::min(validation->examples(), static_cast<int64_t>(settings_.batch)));
  }
  restore(before, script_, *optimizer_);
  rehearsed_ = step_.explain();
}

void Training::go_on_from(const Checkpoint& checkpoint) {
  if (checkpoint.examples != data_.examples()) {
    throw UserError("is of data with " + std::to_string(checkpoint.examples) + " examples, and --data has " +
                    std::to_string(data_.examples()));
  }
  restore(checkpoint.state, script_, *optimizer_);
  history_ = checkpoint.history;
}

at::Tensor Training::indices_of(size_t epoch, int64_t batch) {
  if (!order_ || order_->first != epoch) {
    constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // far apart for neighboring epochs and seeds
    const at::Generator generator = at::detail::createCPUGenerator(settings_.seed ^ (kGoldenRatio * (epoch + 1)));
    order_ = {epoch, settings_.no_shuffle ? at::arange(data_.examples()) : at::randperm(data_.examples(), generator)};
  }
  const int64_t begin = batch * static_cast<int64_t>(settings_.batch);
  return order_->second.slice(0, begin, begin + static_cast<int64_t>(settings_.batch));
}

double Training::step() {
  const size_t epoch = steps_done() / steps_per_epoch_;
  const size_t first = steps_done() % steps_per_epoch_ * settings_.accumulate;
  for (torch::optim::OptimizerParamGroup& group : optimizer_->param_groups()) {
    group.options().set_lr(learning_rate_of(steps_done()));
  }
  double loss = 0;
  for (size_t call = 0; call < settings_.accumulate; ++call) {
    const TrainBatch batch = batch_of(data_, indices_of(epoch, static_cast<int64_t>(first + call)));
    loss += step_(batch.inputs, batch.targets).item<double>() / static_cast<double>(settings_.accumulate);
  }
  if (!std::isfinite(loss)) {
    throw RefusedError("the loss is " + std::to_string(loss) + " in step " + std::to_string(steps_done() + 1) + ", epoch " +
                       std::to_string(epoch + 1) + "; a smaller --lr or --clip-norm may help");
  }
  history_.losses.push_back(loss);
  return loss;
}

double Training::mean_loss(const TrainData& data, int64_t examples) {
  const at::NoGradGuard no_grad;
  module_.eval();
  const TrainStep::GeneralLoss loss = loss_function(settings_.loss);
  double sum = 0;
  for (int64_t begin = 0; begin < examples; begin += static_cast<int64_t>(settings_.batch)) {
    const int64_t end = std::min(examples, begin + static_cast<int64_t>(settings_.batch));
    TrainBatch batch = batch_of(data, at::arange(begin, end));
    const AutocastRegion autocast;
    sum += loss(module_.forward(std::move(batch.inputs)), batch.targets).item<double>() * static_cast<double>(end - begin);
  }
  module_.train();
  return sum / static_cast<double>(examples);
}

double Training::validate(const TrainData& data) {
  const double loss = mean_loss(data, data.examples());
  history_.validation_losses.resize(steps_done() / steps_per_epoch_, std::numeric_limits<double>::quiet_NaN());
  history_.validation_losses.back() = loss;
  return loss;
}

Checkpoint Training::checkpoint() const { return {settings_, data_.examples(), history_, state_of(script_, *optimizer_)}; }

TrainExplanation Training::explain() const {
  TrainExplanation explanation = step_.explain();
  explanation.by_plan -= rehearsed_.by_plan;
  explanation.updated_by_plan -= rehearsed_.updated_by_plan;
  explanation.eager -= rehearsed_.eager;
  explanation.optimizer.steps -= rehearsed_.optimizer.steps;
  explanation.optimizer.captured_steps -= rehearsed_.optimizer.captured_steps;
  for (auto& [reason, times] : explanation.reasons) {
    for (const auto& [rehearsed, rehearsed_times] : rehearsed_.reasons) {
      times -= reason == rehearsed ? rehearsed_times : 0;
    }
  }
  std::erase_if(explanation.reasons, [](const auto& entry) { return entry.second == 0; });
  return explanation;
}

}  // namespace sconce::cli
