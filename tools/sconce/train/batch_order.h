// Which examples a step takes.
#pragma once

#include "tools/sconce/train/placement.h"
#include "tools/sconce/train/settings.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace sconce::cli {

// How far a training is.
struct Progress {
  size_t step = 0;      // steps done
  size_t epoch = 0;     // epochs done
  int64_t example = 0;  // examples that the epoch under way has taken, in all processes
};

// The order of an epoch's examples is a permutation that follows from the seed and the epoch's number. A call of R processes
// takes the next R batches of it, which these divide evenly: rank r takes the r-th part. So R processes take in each step
// the examples that one process with a batch R times as large takes.
class BatchOrder {
 public:
  // Throws UserError if an epoch has no step.
  BatchOrder(int64_t examples, const TrainSettings& settings, Placement placement);

  size_t steps_per_epoch() const { return steps_from(0); }
  // Batches that are too few for a step of --accumulate are left out.
  size_t steps_left_in_epoch(const Progress& now) const { return steps_from(now.example); }
  // Returns the number of steps of the training from its begin to its end.
  size_t steps(const Progress& now) const;
  // Returns the progress after the next step.
  Progress after_step(const Progress& now) const;

  // Returns the sizes of the batches of all ranks in a call of the next step. The last ones of an epoch may be smaller, or
  // 0.
  std::vector<int64_t> sizes(const Progress& now, size_t call) const;
  // Returns whether the last call of an epoch has fewer examples than there are processes.
  bool has_empty_batches() const;
  // Returns the different sizes of batches in an epoch, without 0.
  std::set<int64_t> kinds() const;
  // Returns the numbers of the examples of this process's batch: int64, one dimension.
  at::Tensor batch(const Progress& now, size_t call);

 private:
  size_t steps_from(int64_t example) const;
  // Returns the place of a batch in the epoch's order, [begin, end).
  std::pair<int64_t, int64_t> place_of(const Progress& now, size_t call, int64_t rank) const;

  const int64_t examples_;
  const int64_t size_;
  const int64_t accumulate_;
  const size_t epochs_;
  const uint64_t seed_;
  const bool shuffles_;
  const bool drops_last_;
  const Placement placement_;
  std::optional<std::pair<size_t, at::Tensor>> order_;  // of an epoch
};

}  // namespace sconce::cli
