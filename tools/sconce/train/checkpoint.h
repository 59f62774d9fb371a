// Checkpoints: a training between two steps, as a file.
#pragma once

#include "tools/sconce/train/settings.h"
#include "tools/sconce/train/state.h"

#include <string>
#include <vector>

namespace sconce::cli {

// What a training has shown so far.
struct TrainHistory {
  std::vector<double> losses;             // per step
  std::vector<double> validation_losses;  // per epoch; NaN for those that were not validated
};

struct Checkpoint {
  TrainSettings settings;
  int64_t examples = 0;  // in the data
  TrainHistory history;  // one loss for each step done
  TrainState state;
};

// The file is one that `torch.load` reads: a dict of tensors, numbers and texts. An existing file stays whole until the new
// one is on the disk. Throws UserError with one line that begins with the path.
void write_checkpoint(const Checkpoint& checkpoint, const std::string& path);
// Throws UserError, or c10::Error from the loader, with one line that begins with the path.
Checkpoint read_checkpoint(const std::string& path);

}  // namespace sconce::cli
