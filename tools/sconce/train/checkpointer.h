// Keeps a training on the disk: its last state, and its best model.
#pragma once

#include "tools/sconce/train/train_folder.h"
#include "tools/sconce/train/training.h"

#include <string>

namespace sconce::cli {

// An existing file stays whole until the new one is on the disk, so that the last good one is there whatever happens.
class Checkpointer {
 public:
  // `every`: steps between checkpoints, beside those after epochs; 0: none.
  Checkpointer(TrainFolder folder, size_t every) : folder_(std::move(folder)), every_(every) {}

  // A checkpoint shall be written after the step that has just been done.
  bool is_due(const Training& training) const { return every_ > 0 && training.progress().step % every_ == 0; }
  // Keeps the model as the best one, in training mode if `trains`.
  void keep_best(const Training& training, bool trains);

  // Each of these throws UserError if the disk has no room or the file cannot be written.

  // Writes the best model if there is a new one. If that fails, the next call tries again.
  void write_best();
  void write_checkpoint(const Training& training) const;
  // Writes the model, in training mode if `trains`.
  void write_model(const Training& training, bool trains) const;

 private:
  const TrainFolder folder_;
  const size_t every_;
  std::string best_;  // bytes of the best model that is not on the disk yet
};

}  // namespace sconce::cli
