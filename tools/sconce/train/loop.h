// The loop of a training: steps, epochs, checkpoints and reports until the end or an interruption.
#pragma once

#include "tools/sconce/train/report.h"
#include "tools/sconce/train/training.h"
#include "tools/sconce/ui/progress_bar.h"

#include <filesystem>
#include <optional>
#include <string>

namespace sconce::cli {

// The files of a training.
class TrainFolder {
 public:
  explicit TrainFolder(std::filesystem::path path) : path_(std::move(path)) {}

  // Makes the folder. Throws UserError if that is impossible, files cannot be written there, or it has a checkpoint other
  // than `resumed`, unless that may be overwritten.
  void prepare(const std::string& resumed, bool overwrite) const;

  std::string model() const { return (path_ / "model.pt").string(); }
  std::string checkpoint() const { return (path_ / "checkpoint.pt").string(); }
  std::string csv() const { return (path_ / "loss.csv").string(); }
  std::string svg() const { return (path_ / "loss.svg").string(); }
  std::string page() const { return (path_ / "report.html").string(); }

 private:
  std::filesystem::path path_;
};

struct LoopOptions {
  size_t checkpoint_every = 0;  // steps, beside those after epochs; 0: none
  size_t max_steps = 0;         // in this run; 0: all
  ui::ProgressMode progress = ui::ProgressMode::kAuto;
  bool prints_epochs = true;  // to stdout
};

class TrainLoop {
 public:
  // `training` and `validation` must outlive this.
  TrainLoop(Training& training, const std::optional<TrainData>& validation, TrainFolder folder, LoopOptions options,
            TrainRun run);

  // Returns after the last step, after `max_steps`, or after the step in which the user interrupts. Writes files after an
  // epoch if the last were written more than a second before.
  void run();
  // Writes the checkpoint and the reports; if the training is complete, also the model, in training mode if `trains`.
  void finish(bool trains);

  bool is_complete() const { return training_.steps_done() == training_.steps(); }
  const TrainRun& result() const { return run_; }

 private:
  bool shall_stop() const;
  bool is_checkpoint_due() const;
  void run_steps_of_epoch();
  void end_epoch();
  void write_reports() const;

  Training& training_;
  const std::optional<TrainData>& validation_;
  const TrainFolder folder_;
  const LoopOptions options_;
  TrainRun run_;
};

}  // namespace sconce::cli
