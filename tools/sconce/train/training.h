// A training: the steps, in order, from a module, its data and settings.
#pragma once

#include "tools/sconce/train/batch_order.h"
#include "tools/sconce/train/checkpoint.h"
#include "tools/sconce/train/data_source.h"
#include "tools/sconce/train/evaluation.h"
#include "tools/sconce/train/ranks.h"
#include "tools/sconce/train/read_ahead.h"
#include "tools/sconce/train/samples.h"
#include "tools/sconce/train/settings.h"

#include <sconce/module.h>
#include <sconce/train_step.h>

#include <torch/csrc/jit/api/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace sconce::cli {

// The state after a step is determined by the settings, the data and the module alone, not by what runs beside it: the order
// of an epoch's examples and the numbers that a call draws follow from the seed and the place in the training, and all steps
// run the same plans (`rehearse`). So a training that goes on from a checkpoint ends with the bits of one that was not
// interrupted.
class Training {
 public:
  // Throws UserError if no parameter requires a gradient, or an epoch has no step.
  Training(Module module, std::shared_ptr<const DataSource> data, TrainSettings settings, TrainStep::GeneralLoss loss,
           Ranks ranks = {});

  // Runs steps with each size of batch, and a batch of the validation (may be null), so that plans are compiled and mistakes
  // reported, and takes them back.
  void rehearse(const DataSource* validation);
  // Throws UserError if the checkpoint is of another model or other data.
  void go_on_from(const Checkpoint& checkpoint);

  // What a process wants after a step.
  struct Wishes {
    bool stop = false;
    bool write_files = false;
  };
  // What all of them know after it.
  struct StepEnd {
    double loss = 0;           // the mean over all examples
    bool stop = false;         // any process wants it
    bool write_files = false;  // the first process wants it
  };
  // Runs the next step. Throws RefusedError if the loss is not finite.
  StepEnd step(const std::function<Wishes()>& wishes);
  // Returns whether the state is that after a number of whole steps. It is not where `step` has thrown what the model threw.
  bool is_between_steps() const { return !is_in_step_; }
  // Computes loss and metrics of this process's part of the data, in evaluation mode, without changing anything. Throws
  // Interrupted if the user interrupts it.
  Evaluation evaluate(const DataSource& data);
  // Returns those with the lowest and the highest losses of the first few hundred examples, in evaluation mode. Throws what
  // the model and the loss throw, and UserError if the model's results do not count examples.
  Samples samples(const DataSource& data);
  // Keeps them as those of the epoch that has just ended.
  void keep(const Evaluation& evaluation);

  const Progress& progress() const { return progress_; }
  size_t steps() const { return order_.steps(progress_); }
  size_t steps_left_in_epoch() const { return order_.steps_left_in_epoch(progress_); }
  size_t steps_per_epoch() const { return order_.steps_per_epoch(); }
  bool is_at_end_of_epoch() const { return progress_.example == 0; }
  // All epochs are done, or --early-stopping ends them.
  bool is_complete() const { return progress_.step >= steps() || stops_early(); }
  bool stops_early() const;
  // The epoch that has just ended is the best one so far, by --monitor.
  bool is_best_epoch() const;
  // Of the step, counted from 0.
  double learning_rate_of(size_t step) const;

  const TrainSettings& settings() const { return settings_; }
  const TrainHistory& history() const { return history_; }
  const Module& module() const { return module_; }
  c10::Device device() const { return device_; }
  const Ranks& ranks() const { return ranks_; }
  bool is_first() const { return ranks_.placement().is_first(); }
  // Shares the tensors of the module, which the next step changes. Every process calls `gather_state` first.
  Checkpoint checkpoint() const;
  void gather_state() { step_.unshard_optimizer(); }
  // Of the steps after `rehearse`.
  TrainExplanation explain() const;

 private:
  TrainBatch next_batch();
  c10::IValue run_model(std::vector<c10::IValue> inputs) const;
  Evaluation evaluate(const DataSource& data, int64_t begin, int64_t end);
  // Runs the model on these examples in evaluation mode, batch by batch.
  void run_batches(const DataSource& data, int64_t begin, int64_t end,
                   const std::function<void(const TrainBatch& batch, const c10::IValue& output)>& visit);

  Module module_;
  torch::jit::Module script_;
  const std::shared_ptr<const DataSource> data_;
  const TrainSettings settings_;
  const TrainStep::GeneralLoss loss_;
  const Ranks ranks_;
  const BatchOrder order_;
  const c10::Device device_;  // of the parameters, to which batches are copied
  const std::vector<TargetKind> target_kinds_;
  const bool evaluates_with_gradients_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  const std::vector<double> initial_lrs_;  // of the groups of parameters
  const Schedule schedule_;
  TrainStep step_;
  Progress progress_;
  TrainHistory history_;
  bool is_in_step_ = false;
  TrainExplanation rehearsed_;
  std::optional<ReadAhead> batches_;  // of the steps from `progress_` on
};

}  // namespace sconce::cli
