// A training: the steps, in order, from a module, its data and settings.
#pragma once

#include "tools/sconce/train/checkpoint.h"
#include "tools/sconce/train/data.h"
#include "tools/sconce/train/settings.h"

#include <sconce/module.h>
#include <sconce/train_step.h>

#include <torch/csrc/jit/api/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace sconce::cli {

// The state after a step is determined by the settings, the data and the module alone, not by what runs beside it: the order
// of an epoch's examples follows from the seed and its number, and all steps run the same plans (`rehearse`). So a training
// that goes on from a checkpoint ends with the bits of one that was not interrupted.
class Training {
 public:
  // Throws UserError if no parameter requires a gradient, or an epoch has no step.
  Training(Module module, TrainData data, TrainSettings settings);

  // Runs steps with each kind of batch, and a batch of the validation, so that plans are compiled and mistakes reported, and
  // takes them back.
  void rehearse(const std::optional<TrainData>& validation);
  // Requires that the checkpoint's settings are these. Throws UserError if it is of another model or other data.
  void go_on_from(const Checkpoint& checkpoint);

  // Runs the next step. Returns its loss. Throws RefusedError if that is not finite.
  double step();
  // Returns the mean loss of the module in evaluation mode, without gradients, and keeps it as that of the epoch that has
  // just ended.
  double validate(const TrainData& data);

  size_t steps() const { return settings_.epochs * steps_per_epoch_; }
  size_t steps_per_epoch() const { return steps_per_epoch_; }
  size_t steps_done() const { return history_.losses.size(); }
  bool is_at_end_of_epoch() const { return steps_done() % steps_per_epoch_ == 0; }
  // Of the step, counted from 0.
  double learning_rate_of(size_t step) const { return learning_rate(settings_.schedule, initial_lr_, step, steps()); }

  const TrainSettings& settings() const { return settings_; }
  const TrainHistory& history() const { return history_; }
  const Module& module() const { return module_; }
  Checkpoint checkpoint() const;
  // Of the steps after `rehearse`.
  TrainExplanation explain() const;

 private:
  // Returns the mean loss of the first examples in evaluation mode, without gradients.
  double mean_loss(const TrainData& data, int64_t examples);
  // Returns the indices of the examples of a batch of the epoch.
  at::Tensor indices_of(size_t epoch, int64_t batch);

  Module module_;
  torch::jit::Module script_;
  const TrainData data_;
  const TrainSettings settings_;
  const size_t steps_per_epoch_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  const double initial_lr_;
  TrainStep step_;
  TrainHistory history_;
  TrainExplanation rehearsed_;
  std::optional<std::pair<size_t, at::Tensor>> order_;  // of an epoch
};

}  // namespace sconce::cli
