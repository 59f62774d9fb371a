// The output of `sconce train`.
#pragma once

#include "report/json.h"
#include "tools/sconce/train/training.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sconce::cli {

// What a run of the command did.
struct TrainRun {
  std::string model;
  std::string data;
  std::string resume;     // the command that goes on from the checkpoint
  size_t first_step = 0;  // steps that were done before
  bool is_complete = false;
  double seconds = 0;                                      // of the steps of this run
  std::vector<std::pair<std::string, std::string>> files;  // what each is, and its path
  std::vector<std::string> vocabulary;                     // of sequences among the samples; may be empty
  std::optional<Samples> samples;                          // of a training that is complete

  double steps_per_second(const Training& training) const {
    return static_cast<double>(training.progress().step - first_step) / seconds;
  }
};

// "epoch  3/10  loss 0.12  validation 0.2": of the epoch that has just ended.
std::string epoch_line(const Training& training);

// Returns a short table: epochs, losses, speed, the steps by plan and why others were not, the files.
std::string to_text(const TrainRun& run, const Training& training);
Json to_json(const TrainRun& run, const Training& training);
// Returns a page with the curves, the table, the samples and the settings.
std::string to_page(const TrainRun& run, const Training& training);

}  // namespace sconce::cli
