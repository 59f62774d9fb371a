// Checkpoints: a training between two steps, as a file.
#pragma once

#include "tools/sconce/train/batch_order.h"
#include "tools/sconce/train/history.h"
#include "tools/sconce/train/settings.h"
#include "tools/sconce/train/state.h"

#include <cstdint>
#include <string>

namespace sconce::cli {

struct Checkpoint {
  TrainSettings settings;
  int64_t examples = 0;  // in the data
  int64_t world = 1;     // processes
  Progress progress;
  TrainHistory history;
  TrainState state;
};

// Returns about how many bytes the file takes, at least.
uint64_t bytes_of(const Checkpoint& checkpoint);
// The file is one that `torch.load` reads: a dict of tensors, numbers and texts. An existing file stays whole until the new
// one is on the disk. Throws UserError with one line that begins with the path.
void write_checkpoint(const Checkpoint& checkpoint, const std::string& path);
// Throws UserError, or c10::Error from the loader, with one line that begins with the path.
Checkpoint read_checkpoint(const std::string& path);

}  // namespace sconce::cli
