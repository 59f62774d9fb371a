// The loop of a training: steps, epochs, checkpoints and reports until the end or an interruption.
#pragma once

#include "tools/sconce/train/checkpointer.h"
#include "tools/sconce/train/event_file.h"
#include "tools/sconce/train/loss_log.h"
#include "tools/sconce/train/report.h"
#include "tools/sconce/train/train_folder.h"
#include "tools/sconce/train/training.h"
#include "tools/sconce/ui/progress_bar.h"

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace sconce::cli {

struct LoopOptions {
  size_t checkpoint_every = 0;  // steps, beside those after epochs; 0: none
  size_t max_steps = 0;         // in this run; 0: all
  std::string resumed;          // the checkpoint that the training goes on from; may be empty
  bool overwrite = false;       // the checkpoint of another training
  bool tensorboard = false;     // writes an event file, too
  bool trains = false;          // the mode of the model that was read, and is written
  ui::ProgressMode progress = ui::ProgressMode::kAuto;
  bool prints_epochs = true;  // to stdout
};

// Of several processes, only the first one prints and writes.
class TrainLoop {
 public:
  // `training`, its data and `validation`, which may be null, must outlive this.
  TrainLoop(Training& training, const DataSource& data, const DataSource* validation, const TrainFolder& folder,
            LoopOptions options, TrainRun run);

  // Returns after the last step, after `max_steps`, or after the step or in the validation that the user interrupts; such a
  // validation is made when the training goes on. Writes files after an epoch if the last were written more than a second
  // before. A file that cannot be written then is warned of once, and stays as it is. Before it throws what a step throws,
  // writes the losses so far; also a checkpoint if the step had not begun, as when the data cannot be read.
  void run();
  // Writes the checkpoint and the reports; if the training is complete, also the model. Throws UserError after all if one
  // could not be written.
  void finish();

  bool is_complete() const { return training_.is_complete() && !is_validation_due_; }
  const TrainRun& result() const { return run_; }

 private:
  bool shall_stop() const;
  void run_epochs();
  void run_steps_of_epoch();
  void end_epoch();
  void log_step();
  void write_logs();
  void write_state();
  void keep_state();
  void write_reports();
  void take_samples();
  // Calls `write`, and keeps its UserError.
  void attempt(const std::function<void()>& write);

  Training& training_;
  const DataSource& data_;
  const DataSource* const validation_;
  const TrainFolder folder_;
  const LoopOptions options_;
  TrainRun run_;
  Checkpointer checkpointer_;
  bool is_validation_due_;  // of the epoch that has just ended
  LossLog log_;
  std::optional<EventFile> events_;
  std::string failure_;  // the first to write a file
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_files_ = Clock::now();
  // Of the last step, agreed upon by all processes.
  bool stops_ = false;
  bool writes_files_ = false;
};

}  // namespace sconce::cli
