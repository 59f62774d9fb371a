// Executors timed side by side in one process.
#pragma once

#include "tools/peers/peer.h"
#include "tools/sconce/values/compare.h"

#include <torch/csrc/jit/api/module.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

struct MeasureSettings {
  std::function<torch::jit::Module()> load;  // the model afresh
  std::string method;
  std::vector<c10::IValue> arguments;
  uint64_t seed = 0;
  double seconds = 1.0;  // of steady state, per executor
  size_t loads = 3;      // fresh loads, for the first calls
  size_t threads = 1;    // that call at the same time in steady state
  bool with_grad = false;
  CompareOptions tolerance{1e-3, 1e-4, /*requires_grad=*/false};
};

constexpr size_t kFirstCalls = 10;  // fewer of slow models

// One executor's row.
struct Measurement {
  std::string name;
  std::optional<std::string> not_available;  // why it cannot run the model
  std::optional<std::string> wrong;          // how its results differ from eager ones
  // Medians over the loads. The first call includes what the executor does to a model that was just read.
  std::vector<double> first_calls;
  std::vector<double> steady;   // of each call, seconds
  double calls_per_second = 0;  // of all threads together
  // Growth of the process by the loaded model and its first calls; nothing when it is below kMemoryResolution.
  std::optional<double> memory_bytes;
  // How far the medians of the rounds lie apart: (90th - 10th percentile) / median. NaN when there are few rounds.
  double spread = NAN;
};

// Pages come and go by this much for reasons that have nothing to do with the model.
constexpr double kMemoryResolution = 256.0 * 1024;

struct MeasurementTable {
  std::vector<Measurement> rows;  // in the order of the contestants
  size_t muted = 0;               // how often the model wanted to print or warn meanwhile
  bool complete = true;           // false: the user ended the steady state early
};

struct Contestant {
  std::string name;
  std::function<std::unique_ptr<peers::Peer>()> make;
};

// Called after each piece of work, `pieces_of_work` times in all.
using MeasureProgress = std::function<void(const std::string& executor)>;
size_t pieces_of_work(size_t contestants, const MeasureSettings& settings);

// Loads and rounds of steady state go round all executors in turn, so that the
// drift of a machine (heat, other load) meets all alike. Results of the first and last of the first calls are compared with
// those of eager LibTorch before anything is timed for long. A model that writes into its arguments gets copies for every
// call, made outside the timed part. What the model prints and warns is not shown. Throws Interrupted when the user ends it
// before the first round of steady state is done.
MeasurementTable measure(const std::vector<Contestant>& contestants, const MeasureSettings& settings,
                         const MeasureProgress& progress);

}  // namespace sconce::cli
