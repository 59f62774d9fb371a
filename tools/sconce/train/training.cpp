#include "tools/sconce/train/training.h"

#include "analysis/effects.h"
#include "ir/graph.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/train/loss.h"
#include "tools/sconce/ui/interruption.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/fit_arguments.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

namespace sconce::cli {
namespace {

constexpr int64_t kExaminedForSamples = 256;

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

TrainOptions options_of(const TrainSettings& settings, const Ranks& ranks) {
  TrainOptions options;
  options.method(settings.method);
  if (ranks.group()) {
    options.data_parallel(*ranks.group());
    options.synchronize_batch_norm(settings.sync_batch_norm);
    options.shard_optimizer(settings.shard_optimizer);
  }
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

std::vector<at::Tensor> tensors_of_values(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    tensors.push_back(value.toTensor());
  }
  return tensors;
}

// A call of such a model needs gradients for its result.
bool takes_gradients(const Graph& graph) {
  bool takes = marks_tensors(graph);
  for_each_node(graph.body(), [&takes](const Node* node) {
    const std::string_view name = node->kind().toQualString();
    takes = takes || name == "aten::grad" || name == "aten::backward";
  });
  return takes;
}

// A loss in a script may judge either kind.
std::vector<TargetKind> target_kinds_of(const TrainSettings& settings, const DataSource& data) {
  std::vector<TargetKind> kinds;
  for (const std::string& loss : settings.loss) {
    kinds.push_back(loss.starts_with("bce") ? TargetKind::kBinary : TargetKind::kClasses);
  }
  if (settings.loss.empty()) {
    for (const c10::IValue& target : data.read(at::arange(1)).targets) {
      const bool are_classes = at::isIntegralType(target.toTensor().scalar_type(), /*includeBool=*/false);
      kinds.push_back(are_classes ? TargetKind::kClasses : TargetKind::kBinary);
    }
  }
  return kinds;
}

std::vector<double> learning_rates_of(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    rates.push_back(group.options().get_lr());
  }
  return rates;
}

// Returns whether no input or target of the batch is infinite or no number.
bool are_finite(const TrainBatch& batch) {
  const auto is_finite = [](const c10::IValue& value) {
    return !value.isTensor() || !value.toTensor().is_floating_point() || value.toTensor().isfinite().all().item<bool>();
  };
  return std::ranges::all_of(batch.inputs, is_finite) && std::ranges::all_of(batch.targets, is_finite);
}

}  // namespace

Training::Training(Module module, std::shared_ptr<const DataSource> data, TrainSettings settings,
                   TrainStep::GeneralLoss loss, Ranks ranks)
    : module_(std::move(module)),
      script_(module_.script_module()),
      data_(std::move(data)),
      settings_(std::move(settings)),
      loss_(std::move(loss)),
      ranks_(std::move(ranks)),
      order_(data_->examples(), settings_, ranks_.placement()),
      device_(distinct_parameters(script_).front().device()),
      target_kinds_(target_kinds_of(settings_, *data_)),
      evaluates_with_gradients_(takes_gradients(module_.method(settings_.method).graph())),
      optimizer_(make_optimizer(settings_, distinct_parameters(script_))),
      initial_lrs_(learning_rates_of(*optimizer_)),
      schedule_(schedule_of(settings_, initial_lrs_.front())),
      step_(module_, loss_, *optimizer_, options_of(settings_, ranks_)) {
  if (settings_.sync_batch_norm && !ranks_.is_alone() && order_.has_empty_batches()) {
    throw UserError(
        "--sync-batch-norm: the last step of an epoch has fewer examples than there are processes, and a batch norm "
        "over all of them needs one of each; give --drop-last, or another --batch");
  }
  module_.train();
}

void Training::rehearse(const DataSource* validation) {
  const TrainState before = copy_of(state_of(script_, *optimizer_));
  seed_draws(settings_.seed, 0, 0);
  for (const int64_t size : order_.kinds()) {
    const TrainBatch batch = read_to(*data_, at::arange(size), device_);
    fit_arguments(script_, settings_.method, batch.inputs);
    // A plan may run only from the third call of a kind on.
    for (size_t call = 0; call < 3 * settings_.accumulate; ++call) {
      step_(batch.inputs, batch.targets);
    }
  }
  if (validation != nullptr) {
    evaluate(*validation, 0, std::min(validation->examples(), static_cast<int64_t>(settings_.batch)));
  }
  gather_state();
  restore(before, script_, *optimizer_);
  rehearsed_ = step_.explain();
}

void Training::go_on_from(const Checkpoint& checkpoint) {
  if (checkpoint.examples != data_->examples()) {
    throw UserError("is of data with " + std::to_string(checkpoint.examples) + " examples, and --data has " +
                    std::to_string(data_->examples()));
  }
  restore(checkpoint.state, script_, *optimizer_);
  progress_ = checkpoint.progress;
  history_ = checkpoint.history;
  batches_.reset();
  // With other batches, the rest of an epoch may be too small for a step.
  if (progress_.example > 0 && order_.steps_left_in_epoch(progress_) == 0) {
    progress_ = {.step = progress_.step, .epoch = progress_.epoch + 1};
    history_.end_epoch();
  }
}

TrainBatch Training::next_batch() {
  if (!batches_) {
    batches_.emplace([data = data_, device = device_, order = order_, accumulate = settings_.accumulate, now = progress_,
                      call = size_t{0}, last = steps()]() mutable -> std::optional<TrainBatch> {
      if (now.step == last) {
        return std::nullopt;
      }
      TrainBatch batch = read_to(*data, order.batch(now, call), device);
      if (++call == accumulate) {
        call = 0;
        now = order.after_step(now);
      }
      return batch;
    });
  }
  return batches_->next().value();
}

// Runs the module's hooks, too, if the method is `forward`.
c10::IValue Training::run_model(std::vector<c10::IValue> inputs) const {
  return settings_.method == "forward" ? module_.forward(std::move(inputs))
                                       : module_.run_method(settings_.method, std::move(inputs));
}

Training::StepEnd Training::step(const std::function<Wishes()>& wishes) {
  const Placement& place = ranks_.placement();
  std::vector<torch::optim::OptimizerParamGroup>& groups = optimizer_->param_groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].options().set_lr(initial_lrs_[i] * schedule_.share_of(progress_.step, steps()));
  }
  double loss = 0;
  bool has_bad_data = false;
  for (size_t call = 0; call < settings_.accumulate; ++call) {
    const TrainBatch batch = next_batch();
    is_in_step_ = true;
    seed_draws(settings_.seed, progress_.step,
               call * static_cast<uint64_t>(place.world) + static_cast<uint64_t>(place.rank));
    if (ranks_.is_alone()) {
      const auto own = step_(batch.inputs, batch.targets).item<double>();
      has_bad_data = has_bad_data || (!std::isfinite(own) && !are_finite(batch));
      loss += own / static_cast<double>(settings_.accumulate);
      continue;
    }
    const std::vector<int64_t> sizes = order_.sizes(progress_, call);
    const int64_t own = sizes[static_cast<size_t>(place.rank)];
    if (own == 0) {
      step_.skip();
      continue;
    }
    const auto all = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
    const double share = static_cast<double>(own) / (all * static_cast<double>(settings_.accumulate));
    const auto own_loss = step_(batch.inputs, batch.targets, share).item<double>();
    has_bad_data = has_bad_data || (!std::isfinite(own_loss) && !are_finite(batch));
    loss += own_loss * share;
  }
  const Wishes own = wishes();
  const std::vector<double> sums =
      ranks_.sum({loss, own.stop ? 1.0 : 0.0, place.is_first() && own.write_files ? 1.0 : 0.0, has_bad_data ? 1.0 : 0.0});
  loss = sums[0];
  if (!std::isfinite(loss)) {
    throw RefusedError("the loss is " + std::to_string(loss) + " in step " + std::to_string(progress_.step + 1) +
                       ", epoch " + std::to_string(progress_.epoch + 1) +
                       (sums[3] > 0 ? ": an example of its batch has numbers that are not finite"
                                    : "; a smaller --lr or --clip-norm may help"));
  }
  is_in_step_ = false;
  history_.add_step(loss);
  progress_ = order_.after_step(progress_);
  if (is_at_end_of_epoch()) {
    history_.end_epoch();
  }
  return {loss, sums[1] > 0, sums[2] > 0};
}

Evaluation Training::evaluate(const DataSource& data) {
  // Running statistics may differ. Those of the first process are saved.
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : script_.buffers()) {
    buffers.push_back(buffer);
  }
  ranks_.broadcast(buffers);
  const auto [begin, end] = ranks_.placement().part_of(data.examples());
  Evaluation own = evaluate(data, begin, end);
  if (ranks_.is_alone()) {
    return own;
  }
  // All processes add up in the same order, so that they agree about what is best.
  const std::vector<char> bytes = torch::jit::pickle_save(own.state());
  Evaluation all(settings_.metric, target_kinds_);
  for (const std::string& of_rank : ranks_.gather({bytes.begin(), bytes.end()})) {
    all.merge(torch::jit::pickle_load({of_rank.begin(), of_rank.end()}).toTensorVector());
  }
  return all;
}

Evaluation Training::evaluate(const DataSource& data, int64_t begin, int64_t end) {
  Evaluation evaluation(settings_.metric, target_kinds_);
  run_batches(data, begin, end, [&](const TrainBatch& batch, const c10::IValue& output) {
    const double loss = loss_(output, batch.targets).item<double>();
    const at::NoGradGuard no_grad;
    evaluation.add(loss, output, batch.targets);
  });
  return evaluation;
}

Samples Training::samples(const DataSource& data) {
  Samples chosen;
  int64_t number = 0;
  const auto add_all = [](std::vector<at::Tensor>& rows, const std::vector<at::Tensor>& tensors, int64_t example) {
    for (const at::Tensor& tensor : tensors) {
      rows.push_back(tensor.detach().select(0, example).to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
    }
  };
  run_batches(data, 0, std::min(data.examples(), kExaminedForSamples),
              [&](const TrainBatch& batch, const c10::IValue& output) {
                const std::vector<at::Tensor> inputs = tensors_of_values(batch.inputs);
                const std::vector<at::Tensor> targets = tensors_of_values(batch.targets);
                const std::vector<at::Tensor> results = tensors_of_output(output);
                for (int64_t i = 0; i < batch.examples(); ++i, ++number) {
                  std::vector<c10::IValue> target;
                  for (const at::Tensor& each : targets) {
                    target.emplace_back(each.narrow(0, i, 1));
                  }
                  const c10::IValue result = result_of_example(output, i, batch.examples());
                  Sample& sample = chosen.samples.emplace_back();
                  sample.number = number;
                  sample.loss = loss_(result, target).item<double>();
                  add_all(sample.inputs, inputs, i);
                  add_all(sample.targets, targets, i);
                  add_all(sample.results, results, i);
                }
                chosen = best_and_worst(std::move(chosen.samples));
              });
  chosen.examples = number;
  return chosen;
}

void Training::run_batches(const DataSource& data, int64_t begin, int64_t end,
                           const std::function<void(const TrainBatch& batch, const c10::IValue& output)>& visit) {
  constexpr uint64_t kDrawsOfEvaluation = uint64_t{1} << 32;  // calls of a step have smaller numbers
  const Placement& place = ranks_.placement();
  module_.eval();
  const auto to_training_mode = c10::make_scope_exit([this] { module_.train(); });
  const auto size = static_cast<int64_t>(settings_.batch);
  ReadAhead batches([&data, device = device_, size, end, next = begin]() mutable -> std::optional<TrainBatch> {
    if (next >= end) {
      return std::nullopt;
    }
    const int64_t stop = std::min(end, next + size);
    TrainBatch batch = read_to(data, at::arange(next, stop), device);
    next = stop;
    return batch;
  });
  for (uint64_t number = 0; std::optional<TrainBatch> batch = batches.next(); ++number) {
    if (number > 0 && ranks_.is_alone() && interrupted()) {  // several processes agree after the next step
      throw Interrupted();
    }
    seed_draws(settings_.seed, progress_.step,
               kDrawsOfEvaluation + number * static_cast<uint64_t>(place.world) + static_cast<uint64_t>(place.rank));
    const AutocastRegion autocast(device_.type());
    const at::AutoGradMode gradients(evaluates_with_gradients_);
    visit(*batch, run_model(batch->inputs));
  }
}

void Training::keep(const Evaluation& evaluation) {
  history_.set(TrainHistory::kValidationLoss, /*higher_is_better=*/false, evaluation.loss());
  for (const auto& [name, value] : evaluation.metrics()) {
    history_.set(name, is_higher_better(name), value);
  }
}

bool Training::stops_early() const {
  const size_t patience = settings_.early_stopping;
  if (patience == 0 || !is_at_end_of_epoch()) {
    return false;
  }
  const BestEpoch best = best_epoch(history_.find(settings_.monitor));
  const size_t since = history_.ends.size() - (best.is_known() ? best.epoch + 1 : 0);
  return since >= patience;
}

bool Training::is_best_epoch() const {
  const BestEpoch best = best_epoch(history_.find(settings_.monitor));
  return best.is_known() && best.epoch + 1 == history_.ends.size();
}

double Training::learning_rate_of(size_t step) const { return initial_lrs_.front() * schedule_.share_of(step, steps()); }

Checkpoint Training::checkpoint() const {
  return {.settings = settings_,
          .examples = data_->examples(),
          .world = ranks_.placement().world,
          .progress = progress_,
          .history = history_,
          .state = state_of(script_, *optimizer_)};
}

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
