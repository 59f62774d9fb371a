// Times executors side by side in one process.
#pragma once

#include "tools/peers/peer.h"
#include "tools/sconce/bench/training_peer.h"
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
  std::function<torch::jit::Module()> load;  // loads the model again
  std::string method;
  std::vector<c10::IValue> arguments;
  uint64_t seed = 0;
  double seconds = 1.0;  // of steady state, per executor
  size_t loads = 3;      // fresh loads, for the first calls
  size_t threads = 1;    // threads that call at the same time in steady state
  bool with_grad = false;
  std::optional<Optimizer> train;  // a call is a training step with this optimizer; then with_grad is true
  CompareOptions tolerance{1e-3, 1e-4, /*requires_grad=*/false};
};

constexpr size_t kFirstCalls = 10;  // fewer of slow models

// One executor's row.
struct Measurement {
  std::string name;
  std::optional<std::string> not_available;  // why it cannot run the model
  std::optional<std::string> wrong;          // how its results differ from eager ones
  std::optional<std::string> remark;         // what to know of its times (peers::Peer::remark)
  // Medians over the loads. The first call includes the executor's preparation of a newly loaded model.
  std::vector<double> first_calls;
  std::vector<double> steady;   // seconds of each call
  std::vector<double> rounds;   // the median of each round of steady state
  double calls_per_second = 0;  // all threads together
  // Medians of the parts of a training step (peers::parts_of_steps), on the host; none if it has no parts.
  std::vector<double> parts;
  // Growth of the process by the loaded model and its first calls; nothing if it is below kMemoryResolution.
  std::optional<double> memory_bytes;
  // First calls, each in a process of its own that did nothing before, and the median of its memory after the call.
  std::vector<double> cold_calls = {};
  std::optional<double> process_bytes = std::nullopt;
  // The spread of the rounds' medians: (90th - 10th percentile) / median. NaN if there are few rounds.
  double spread = NAN;
};

// The process grows and shrinks by this much for reasons unrelated to the model.
constexpr double kMemoryResolution = 256.0 * 1024;

struct MeasurementTable {
  std::vector<Measurement> rows;  // in the order of the contestants
  size_t muted = 0;               // number of the model's prints and warnings, which were not shown
  bool complete = true;           // false if the user ended the steady state early
};

struct Contestant {
  std::string name;
  std::function<std::unique_ptr<peers::Peer>()> make;
  bool runs_steps = false;  // its calls are training steps already
};

// Returns what makes the calls that are measured: with the caller's autocast, and as training steps if the settings say so.
std::unique_ptr<peers::Peer> caller_of(const Contestant& contestant, const MeasureSettings& settings);
// Returns (90th - 10th percentile) / median.
double spread_of(const std::vector<double>& rounds);

// Called after each piece of work, `pieces_of_work` times in all.
using MeasureProgress = std::function<void(const std::string& executor)>;
size_t pieces_of_work(size_t contestants, const MeasureSettings& settings);

// Measures all executors. They take turns, in loads and in rounds of steady state, so that a drift of the machine (heat,
// other load) affects all of them. The results of the first and the last of the first calls are compared with eager
// LibTorch's before the steady state. A model that writes its arguments gets copies for every call, made outside the timed
// part. The time of a call ends when the GPUs that it uses have done its work. The model's prints and warnings are not
// shown. Throws what the model throws; the first contestant's error if it rejects the arguments as LibTorch does. Throws
// Interrupted if the user ends it before the first round of steady state is done.
MeasurementTable measure(const std::vector<Contestant>& contestants, const MeasureSettings& settings,
                         const MeasureProgress& progress);

}  // namespace sconce::cli
